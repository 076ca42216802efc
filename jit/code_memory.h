#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "quern/status.h"

namespace quern::jit {

/// The system calls that code memory needs, replaceable so that tests can refuse each of them.
/// Every function returns 0 or an errno. An implementation must outlive every block made with it.
class MemoryApi {
 public:
  virtual ~MemoryApi() = default;
  virtual size_t page_bytes() const noexcept = 0;
  /// Private anonymous pages, readable and writable.
  virtual int map_rw(size_t bytes, void** out) const noexcept = 0;
  /// Takes the right to write away and gives the right to execute, in one step.
  virtual int protect_rx(void* base, size_t bytes) const noexcept = 0;
  virtual int unmap(void* base, size_t bytes) const noexcept = 0;
  virtual int create_memfd(unsigned flags, int* fd) const noexcept = 0;
  /// Appends all of `bytes` to the file.
  virtual int write_fd(int fd, const uint8_t* data, size_t bytes) const noexcept = 0;
  /// The file's pages, readable and executable, never writable.
  virtual int map_fd_rx(int fd, size_t bytes, void** out) const noexcept = 0;
  virtual int close_fd(int fd) const noexcept = 0;
  /// Whether the kernel has the page down as executable; true as well where it does not tell.
  virtual bool may_execute(const void* base) const noexcept = 0;
};

/// Linux. Stateless.
const MemoryApi& system_memory();

/// Executable pages that hold one kernel. Immutable; unmapped by the destructor.
class CodeBlock {
 public:
  CodeBlock(const MemoryApi& api, void* base, size_t mapped_bytes, size_t code_bytes) noexcept
      : api_(api), base_(base), mapped_bytes_(mapped_bytes), code_bytes_(code_bytes) {}
  ~CodeBlock();
  CodeBlock(const CodeBlock&) = delete;
  CodeBlock& operator=(const CodeBlock&) = delete;

  /// Page aligned.
  const void* entry() const noexcept { return base_; }
  size_t size() const noexcept { return code_bytes_; }
  /// Whole pages; what follows the code is filled with int3.
  size_t mapped_bytes() const noexcept { return mapped_bytes_; }

 private:
  const MemoryApi& api_;
  void* base_;
  size_t mapped_bytes_;
  size_t code_bytes_;
};

/// Far above any kernel; a larger request is a generator gone wrong.
constexpr size_t kMaxCodeBytes = size_t{16} << 20;

/// Turns bytes into executable memory that was never writable and executable at once:
///   1. anonymous pages are written, then made read+execute with mprotect;
///   2. where a policy refuses that (EACCES, EPERM), the bytes are written into a memfd through its
///      descriptor and the file is mapped read+execute: no writable mapping ever exists.
/// What the calls report is checked once against the kernel's own record of the page: a system that
/// reports success and withholds the right is a refusal too. Copies share their state. Thread-safe.
class CodeMemory {
 public:
  CodeMemory();  ///< on system_memory()
  explicit CodeMemory(const MemoryApi& api);

  /// kInvalidArgument for no bytes, kTooLarge above kMaxCodeBytes, kOutOfMemory, or kJitUnavailable
  /// when executable memory is denied; the text names the cause and the values are errnos. The
  /// first call also publishes and runs a function of one instruction; a refusal found there is
  /// final, want of memory is not.
  Result<std::shared_ptr<const CodeBlock>> publish(const uint8_t* bytes, size_t n) const noexcept;

 private:
  struct State;
  Status probe() const;
  Status try_ways() const;
  Result<std::shared_ptr<const CodeBlock>> place(const uint8_t* bytes, size_t n) const;
  std::shared_ptr<State> state_;
};

}  // namespace quern::jit
