#include "jit/code_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace quern::jit {
namespace {

// Debian 12's headers are older than the flag (Linux 6.3). Without it a kernel with
// vm.memfd_noexec=1 makes the file non-executable and =0 logs a warning.
constexpr unsigned kMfdExec = 0x0010u;
constexpr unsigned kMfdCloexec = 0x0001u;
constexpr uint8_t kInt3 = 0xcc;
constexpr uint8_t kRet = 0xc3;

using BlockPtr = std::shared_ptr<const CodeBlock>;

int error_of(bool failed) {
  return failed ? errno : 0;
}

class SystemMemory final : public MemoryApi {
 public:
  size_t page_bytes() const noexcept override {
    return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  }

  int map_rw(size_t bytes, void** out) const noexcept override {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return errno;
    *out = p;
    return 0;
  }

  int protect_rx(void* base, size_t bytes) const noexcept override {
    return error_of(::mprotect(base, bytes, PROT_READ | PROT_EXEC) != 0);
  }

  int unmap(void* base, size_t bytes) const noexcept override {
    return error_of(::munmap(base, bytes) != 0);
  }

  // By number: glibc has the function since 2.27, other C libraries not at all.
  int create_memfd(unsigned flags, int* fd) const noexcept override {
    const long r = ::syscall(SYS_memfd_create, "quern-jit", flags);
    if (r < 0) return errno;
    *fd = static_cast<int>(r);
    return 0;
  }

  int write_fd(int fd, const uint8_t* data, size_t bytes) const noexcept override {
    while (bytes > 0) {
      const ssize_t n = ::write(fd, data, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (n == 0) return ENOSPC;
      data += n;
      bytes -= static_cast<size_t>(n);
    }
    return 0;
  }

  // Private, so that a forked child can never see the parent's pages change (nobody can change
  // them: the descriptor is closed before the block is handed out).
  int map_fd_rx(int fd, size_t bytes, void** out) const noexcept override {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return errno;
    *out = p;
    return 0;
  }

  int close_fd(int fd) const noexcept override { return error_of(::close(fd) != 0); }

  bool may_execute(const void* base) const noexcept override {
    std::FILE* maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return true;
    const auto address = reinterpret_cast<uintptr_t>(base);
    char* line = nullptr;
    size_t capacity = 0;
    bool executable = true;
    while (::getline(&line, &capacity, maps) > 0) {
      uintptr_t begin = 0, end = 0;
      char rights[5] = "";
      if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, rights) != 3) continue;
      if (address < begin || address >= end) continue;
      executable = rights[2] == 'x';
      break;
    }
    std::free(line);
    std::fclose(maps);
    return executable;
  }
};

/// A refusal by policy, which another way of mapping may get around; anything else is final.
bool is_refusal(int error) {
  return error == EACCES || error == EPERM;
}

/// Want of memory in its several spellings: ENFILE and EMFILE are descriptors, EAGAIN is
/// RLIMIT_MEMLOCK, ENOSPC the size limit of tmpfs.
bool is_shortage(int error) {
  return error == ENOMEM || error == EAGAIN || error == ENFILE || error == EMFILE ||
         error == ENOSPC;
}

/// In place of an errno: the call reports success and the page is not executable all the same.
constexpr int kWithheld = -1;

Status shortage(int error) {
  return Status(StatusCode::kOutOfMemory, "no memory for generated code (errno {0})", error);
}

/// Owns a mapping until it becomes a CodeBlock.
class Mapping {
 public:
  Mapping(const MemoryApi& api, void* base, size_t bytes) : api_(api), base_(base), bytes_(bytes) {}
  ~Mapping() {
    if (base_ != nullptr) (void)api_.unmap(base_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* base() const { return base_; }

  /// If this throws, the mapping is still owned and is given back.
  BlockPtr release(size_t code_bytes) {
    BlockPtr block = std::make_shared<const CodeBlock>(api_, base_, bytes_, code_bytes);
    base_ = nullptr;
    return block;
  }

 private:
  const MemoryApi& api_;
  void* base_;
  size_t bytes_;
};

/// The bytes to place and the whole pages they get.
struct Image {
  const uint8_t* code;
  size_t code_bytes;
  size_t mapped_bytes;
};

/// Outcome of one way: a block, or the errno of the step that failed.
struct Attempt {
  BlockPtr block;
  int error = 0;
};

Attempt place_anonymous(const MemoryApi& api, const Image& image) {
  void* base = nullptr;
  if (const int error = api.map_rw(image.mapped_bytes, &base)) return {nullptr, error};
  Mapping mapping(api, base, image.mapped_bytes);
  std::memcpy(base, image.code, image.code_bytes);
  std::memset(static_cast<uint8_t*>(base) + image.code_bytes, kInt3,
              image.mapped_bytes - image.code_bytes);
  if (const int error = api.protect_rx(base, image.mapped_bytes)) return {nullptr, error};
  return {mapping.release(image.code_bytes), 0};
}

/// Writing through the descriptor needs no second mapping, unlike the usual pair of a writable and
/// an executable view of one file: there is no moment at which the code could be changed in place.
Attempt place_memfd(const MemoryApi& api, const Image& image) {
  int fd = -1;
  int error = api.create_memfd(kMfdCloexec | kMfdExec, &fd);
  if (error == EINVAL) error = api.create_memfd(kMfdCloexec, &fd);  // Linux before 6.3
  if (error != 0) return {nullptr, error};
  error = api.write_fd(fd, image.code, image.code_bytes);
  uint8_t padding[256];
  std::memset(padding, kInt3, sizeof padding);
  for (size_t at = image.code_bytes; error == 0 && at < image.mapped_bytes;) {
    const size_t n = std::min(sizeof padding, image.mapped_bytes - at);
    error = api.write_fd(fd, padding, n);
    at += n;
  }
  void* base = nullptr;
  if (error == 0) error = api.map_fd_rx(fd, image.mapped_bytes, &base);
  (void)api.close_fd(fd);  // the mapping keeps the file
  if (error != 0) return {nullptr, error};
  return {Mapping(api, base, image.mapped_bytes).release(image.code_bytes), 0};
}

// Not a static of the function, whose guard a forked child could find taken for ever.
constinit const SystemMemory kSystemMemory;

}  // namespace

const MemoryApi& system_memory() {
  return kSystemMemory;
}

CodeBlock::~CodeBlock() {
  (void)api_.unmap(base_, mapped_bytes_);
}

struct CodeMemory::State {
  explicit State(const MemoryApi& memory) : api(memory) {}
  const MemoryApi& api;
  /// Why mprotect is not asked any more, an errno or kWithheld; 0 while it is. Set once it was
  /// refused and the memfd was not: a policy that logs every refusal (SELinux) need not be asked
  /// again for each kernel.
  std::atomic<int> anonymous_error{0};
  /// What the probe found, null before. No lock: a forked child could find it locked for ever. Two
  /// first callers both probe, and the one that is later takes the other's word.
  std::atomic<const Status*> probed{nullptr};
  ~State() { delete probed.load(std::memory_order_acquire); }
};

CodeMemory::CodeMemory() : CodeMemory(system_memory()) {}
CodeMemory::CodeMemory(const MemoryApi& api) : state_(std::make_shared<State>(api)) {}

Result<BlockPtr> CodeMemory::place(const uint8_t* bytes, size_t n) const {
  const MemoryApi& api = state_->api;
  const size_t page = api.page_bytes();
  const Image image{bytes, n, (n + page - 1) / page * page};
  Attempt anonymous{nullptr, state_->anonymous_error.load(std::memory_order_relaxed)};
  if (anonymous.error == 0) {
    anonymous = place_anonymous(api, image);
    if (anonymous.block) return std::move(anonymous.block);
    if (is_shortage(anonymous.error)) return shortage(anonymous.error);
    if (!is_refusal(anonymous.error)) {
      return Status(StatusCode::kJitUnavailable,
                    "executable memory cannot be had: mmap or mprotect failed with errno {0}",
                    anonymous.error);
    }
  }
  Attempt memfd = place_memfd(api, image);
  if (memfd.block) {
    state_->anonymous_error.store(anonymous.error, std::memory_order_relaxed);
    return std::move(memfd.block);
  }
  if (is_shortage(memfd.error)) return shortage(memfd.error);
  if (anonymous.error == kWithheld) {
    return Status(
        StatusCode::kJitUnavailable,
        "executable memory is withheld: mprotect(PROT_EXEC) reports success, but "
        "/proc/self/maps shows pages that cannot be executed; memfd failed with errno {0}",
        memfd.error);
  }
  return Status(StatusCode::kJitUnavailable,
                "executable memory is denied: mprotect(PROT_EXEC) with errno {0}, memfd with errno "
                "{1}. A policy forbids it: SELinux (execmem, boolean deny_execmem), seccomp, "
                "systemd MemoryDenyWriteExecute, PaX MPROTECT, vm.memfd_noexec or a noexec mount",
                anonymous.error, memfd.error);
}

// One way after the other, each held against what the kernel says of the page. Several threads may
// be here at once: what one finds out about mprotect, the others take as known.
Status CodeMemory::try_ways() const {
  State& state = *state_;
  for (;;) {
    const bool memfd_only = state.anonymous_error.load(std::memory_order_relaxed) != 0;
    const Result<BlockPtr> block = place(&kRet, 1);
    if (!block.ok()) return block.status();
    const void* entry = (*block)->entry();
    if (state.api.may_execute(entry)) {
      reinterpret_cast<void (*)()>(reinterpret_cast<uintptr_t>(entry))();
      return Status();
    }
    if (memfd_only) break;
    int unknown = 0;
    state.anonymous_error.compare_exchange_strong(unknown, kWithheld, std::memory_order_relaxed);
  }
  return Status(StatusCode::kJitUnavailable,
                "executable memory is withheld: mmap of a memfd reports success, but "
                "/proc/self/maps shows pages that cannot be executed");
}

// What can be found is a refusal that the kernel knows of. Where it records an executable page and
// something below it withholds the right, the process ends in the function of one instruction:
// telling that apart would take a signal handler, which is not a library's to set.
Status CodeMemory::probe() const {
  State& state = *state_;
  const Status* known = state.probed.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  const Status status = try_ways();
  if (status.code() == StatusCode::kOutOfMemory) return status;
  auto found = std::make_unique<const Status>(status);
  if (state.probed.compare_exchange_strong(known, found.get(), std::memory_order_acq_rel)) {
    return *found.release();
  }
  return *known;
}

Result<BlockPtr> CodeMemory::publish(const uint8_t* bytes, size_t n) const noexcept {
  if (bytes == nullptr || n == 0) {
    return Status(StatusCode::kInvalidArgument, "no code to publish ({0} bytes)",
                  static_cast<int64_t>(n));
  }
  if (n > kMaxCodeBytes) {
    return Status(StatusCode::kTooLarge, "generated code of {0} bytes is above the limit of {1}",
                  static_cast<int64_t>(n), static_cast<int64_t>(kMaxCodeBytes));
  }
  try {
    if (const Status status = probe(); !status.ok()) return status;
    return place(bytes, n);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory for the record of a code block");
  }
}

}  // namespace quern::jit
