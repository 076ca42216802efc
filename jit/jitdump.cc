#include "jit/jitdump.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "jit/byte_buffer.h"
#include "jit/output_file.h"

namespace quern::jit {
namespace {

constexpr char kWhat[] = "jitdump";
constexpr uint32_t kMagic = 0x4A695444;  // "JiTD", as the machine stores it
constexpr uint32_t kVersion = 1;
constexpr uint32_t kHeaderBytes = 40;
enum RecordId : uint32_t { kCodeLoad = 0, kCodeDebugInfo = 2, kCodeClose = 3 };

uint64_t timestamp() {
  timespec t{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

ByteBuffer file_header(pid_t pid) {
  ByteBuffer out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(kHeaderBytes);
  out.put(uint32_t{EM_X86_64});
  out.put(uint32_t{0});
  out.put(static_cast<uint32_t>(pid));
  out.put(timestamp());
  out.put(uint64_t{0});  // flags: timestamps are CLOCK_MONOTONIC, not the TSC
  return out;
}

/// Leaves room for the size, which finish_record fills in. Returns where the record begins.
size_t begin_record(ByteBuffer& out, RecordId id) {
  const size_t start = out.size();
  out.put(static_cast<uint32_t>(id));
  out.put(uint32_t{0});
  out.put(timestamp());
  return start;
}

void finish_record(ByteBuffer& out, size_t start) {
  out.put_at(start + 4, static_cast<uint32_t>(out.size() - start));
}

void put_line(ByteBuffer& out, uint64_t address, uint32_t line, const std::string& section) {
  out.put(address);
  out.put(line);
  out.put(uint32_t{0});  // discriminator
  out.put_string(section);
}

// One line more than there are sections: perf ends the line table at the last address it is given,
// so without a line at the end of the code the last section would have no instructions.
void put_debug_info(ByteBuffer& out, const GeneratedCode& code, uint64_t address) {
  if (code.sections.empty()) return;
  const size_t start = begin_record(out, kCodeDebugInfo);
  out.put(address);
  out.put(static_cast<uint64_t>(code.sections.size() + 1));
  uint32_t line = 0;
  for (const CodeSection& section : code.sections) {
    put_line(out, address + section.offset, ++line, section.name);
  }
  put_line(out, address + code.bytes.size(), line, code.sections.back().name);
  finish_record(out, start);
}

void put_load(ByteBuffer& out, const GeneratedCode& code, uint64_t address, pid_t pid,
              uint64_t index) {
  const size_t start = begin_record(out, kCodeLoad);
  out.put(static_cast<uint32_t>(pid));
  out.put(static_cast<uint32_t>(::syscall(SYS_gettid)));
  out.put(address);  // vma: where the code is found in memory
  out.put(address);  // code_addr: the same, it never moves
  out.put(static_cast<uint64_t>(code.bytes.size()));
  out.put(index);
  out.put_string(code.name);
  out.put_bytes(code.bytes.data(), code.bytes.size());
  finish_record(out, start);
}

}  // namespace

struct JitDump::State {
  State(pid_t process, State* parent) : pid(process), inherited(parent) {}
  ~State() {
    if (fd < 0) return;
    // In a forked child this is the parent's, whose file position is shared and whose mapping is
    // the parent's sign to perf: the file gets its last record from the parent.
    if (pid == ::getpid()) {
      ByteBuffer out;
      finish_record(out, begin_record(out, kCodeClose));
      (void)append(out);
    }
    (void)::munmap(marker, marker_bytes);
    (void)::close(fd);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// All of it or nothing; 0 or an errno.
  int append(const ByteBuffer& out) {
    if (!write_all(fd, out.data(), out.size())) {
      const int error = errno;
      if (::ftruncate(fd, size) == 0) (void)::lseek(fd, size, SEEK_SET);
      return error;
    }
    size += static_cast<off_t>(out.size());
    return 0;
  }

  const pid_t pid;
  State* const inherited;
  std::mutex mutex;
  int fd = -1;
  off_t size = 0;
  void* marker = nullptr;
  size_t marker_bytes = 0;
  uint64_t next_index = 0;
};

JitDump::JitDump(std::string directory)
    : directory_(std::move(directory)), state_(std::make_unique<PerProcess<State>>()) {}

JitDump::~JitDump() = default;

void JitDump::open(State& state) const {
  const std::string path = directory_ + "/jit-" + std::to_string(state.pid) + ".dump";
  (void)::unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) fail(kWhat, "create", path, errno);
  const ByteBuffer header = file_header(state.pid);
  int error = write_all(fd, header.data(), header.size()) ? 0 : errno;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* marker = MAP_FAILED;
  if (error == 0) {
    marker = ::mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (marker == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    (void)::close(fd);
    (void)::unlink(path.c_str());
    fail(kWhat, "write, or map executable, as perf needs it,", path, error);
  }
  state.fd = fd;
  state.size = static_cast<off_t>(header.size());
  state.marker = marker;
  state.marker_bytes = page;
}

KernelRecord JitDump::published(const GeneratedCode& code, const Kernel& kernel) {
  State& state = state_->get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.fd < 0) open(state);
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(kernel.entry));
  ByteBuffer out;
  put_debug_info(out, code, address);
  put_load(out, code, address, state.pid, state.next_index++);
  if (const int error = state.append(out)) {
    fail(kWhat, "write", directory_ + "/jit-" + std::to_string(state.pid) + ".dump", error);
  }
  return nullptr;
}

namespace {

struct DumpOfDirectory {
  std::string directory;
  std::shared_ptr<JitDump> dump;
  DumpOfDirectory* older = nullptr;
};

/// Without a lock, which a forked child could find taken for ever. Lives until the process ends,
/// which is when the files get their last record.
struct DumpList {
  constexpr DumpList() = default;
  ~DumpList() {
    for (DumpOfDirectory* d = newest.load(std::memory_order_acquire); d != nullptr;) {
      const std::unique_ptr<DumpOfDirectory> gone(d);
      d = d->older;
    }
  }
  std::atomic<DumpOfDirectory*> newest{nullptr};
};
constinit DumpList dumps;

}  // namespace

std::shared_ptr<JitDump> process_jitdump(const std::string& directory) {
  std::unique_ptr<DumpOfDirectory> fresh;
  for (const DumpOfDirectory* seen = nullptr;;) {
    DumpOfDirectory* newest = dumps.newest.load(std::memory_order_acquire);
    for (const DumpOfDirectory* d = newest; d != seen; d = d->older) {
      if (d->directory == directory) return d->dump;
    }
    seen = newest;
    if (fresh == nullptr) {
      fresh = std::make_unique<DumpOfDirectory>();
      fresh->directory = directory;
      fresh->dump = std::make_shared<JitDump>(directory);
    }
    fresh->older = newest;
    if (dumps.newest.compare_exchange_strong(newest, fresh.get(), std::memory_order_acq_rel)) {
      return fresh.release()->dump;
    }
  }
}

}  // namespace quern::jit
