#pragma once

#include <atomic>
#include <cstdint>

#include "jit/code_memory.h"

namespace quern::jit {

/// The real calls, any of which can be told to fail, with counts of what is mapped and open.
class FakeMemory final : public MemoryApi {
 public:
  size_t page_bytes() const noexcept override { return system_memory().page_bytes(); }

  int map_rw(size_t bytes, void** out) const noexcept override {
    ++map_rw_calls;
    if (map_rw_error != 0) return map_rw_error;
    return mapped(system_memory().map_rw(bytes, out));
  }
  int protect_rx(void* base, size_t bytes) const noexcept override {
    ++protect_calls;
    if (protect_error == kPretend) return 0;
    return protect_error != 0 ? protect_error : system_memory().protect_rx(base, bytes);
  }
  int unmap(void* base, size_t bytes) const noexcept override {
    --live_mappings;
    return system_memory().unmap(base, bytes);
  }
  int create_memfd(unsigned flags, int* fd) const noexcept override {
    ++memfd_calls;
    last_memfd_flags = flags;
    if (flags == memfd_refused_flags) return memfd_refused_error;
    if (memfd_error != 0) return memfd_error;
    const int error = system_memory().create_memfd(flags, fd);
    if (error == 0) ++open_files;
    return error;
  }
  int write_fd(int fd, const uint8_t* data, size_t bytes) const noexcept override {
    return write_error != 0 ? write_error : system_memory().write_fd(fd, data, bytes);
  }
  int map_fd_rx(int fd, size_t bytes, void** out) const noexcept override {
    if (map_fd_error == kPretend) return mapped(system_memory().map_rw(bytes, out));
    if (map_fd_error != 0) return map_fd_error;
    return mapped(system_memory().map_fd_rx(fd, bytes, out));
  }
  int close_fd(int fd) const noexcept override {
    --open_files;
    return system_memory().close_fd(fd);
  }
  bool may_execute(const void* base) const noexcept override {
    ++may_execute_calls;
    return system_memory().may_execute(base);
  }

  /// As an error: success is reported, and the page cannot be executed.
  static constexpr int kPretend = -1;

  int map_rw_error = 0, protect_error = 0, memfd_error = 0, write_error = 0, map_fd_error = 0;
  unsigned memfd_refused_flags = ~0u;  ///< only this set of flags is refused
  int memfd_refused_error = 0;
  mutable std::atomic<int> live_mappings{0}, open_files{0};
  mutable std::atomic<int> map_rw_calls{0}, protect_calls{0}, memfd_calls{0};
  mutable std::atomic<int> may_execute_calls{0};
  mutable std::atomic<unsigned> last_memfd_flags{0};

 private:
  int mapped(int error) const noexcept {
    if (error == 0) ++live_mappings;
    return error;
  }
};

}  // namespace quern::jit
