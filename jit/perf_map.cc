#include "jit/perf_map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jit/output_file.h"

namespace quern::jit {
namespace {

constexpr char kWhat[] = "perf map";

double seconds(const timespec& t) {
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double now(clockid_t clock) {
  timespec t{};
  (void)::clock_gettime(clock, &t);
  return seconds(t);
}

/// Since this process began; endless where the kernel does not tell, and then no file is old.
double process_age() {
  std::ifstream file("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // Field 2 is the program's name, which may hold anything; field 3 follows its last ')'.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  if (!(fields >> start_ticks)) return 1e300;
  return now(CLOCK_BOOTTIME) - start_ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

const char* refusal(const struct stat& info) {
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1) return "is not a plain file";
  if (info.st_uid != ::geteuid()) return "belongs to another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "can be written by other users";
  return nullptr;
}

/// O_NONBLOCK: a FIFO of that name gives an error instead of waiting for a reader.
int open_map(const std::string& path) {
  const int fd = ::open(path.c_str(),
                        O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  if (fd < 0) fail(kWhat, "open", path, errno);
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    (void)::close(fd);
    fail(kWhat, "look at", path, error);
  }
  if (const char* why = refusal(info)) {
    (void)::close(fd);
    throw std::runtime_error(std::string(kWhat) + ": " + path + " " + why);
  }
  constexpr double kClockSlack = 1.0;  // ticks are 10 ms and the two clocks are read apart
  if (now(CLOCK_REALTIME) - seconds(info.st_mtim) > process_age() + kClockSlack) {
    (void)::ftruncate(fd, 0);
  }
  return fd;
}

}  // namespace

struct PerfMap::State {
  State(pid_t process, State* parent) : pid(process), inherited(parent) {}
  ~State() {
    if (fd >= 0) (void)::close(fd);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const pid_t pid;
  State* const inherited;
  std::mutex mutex;
  int fd = -1;
  const Line* written = nullptr;  ///< it and all older ones are in the file
};

PerfMap::PerfMap(std::string directory)
    : directory_(std::move(directory)), state_(std::make_unique<PerProcess<State>>()) {}

PerfMap::~PerfMap() {
  for (Line* line = newest_.load(); line != nullptr;) {
    const std::unique_ptr<Line> gone(line);
    line = line->older;
  }
}

KernelRecord PerfMap::published(const GeneratedCode& code, const Kernel& kernel) {
  std::string name = code.name;
  std::replace(name.begin(), name.end(), '\n', ' ');
  const auto address = reinterpret_cast<uintptr_t>(kernel.entry);
  auto line = std::make_unique<Line>();
  line->text = hex(address) + ' ' + hex(code.bytes.size()) + ' ' + name + '\n';
  line->older = newest_.load();
  while (!newest_.compare_exchange_weak(line->older, line.get())) {
  }
  (void)line.release();

  State& state = state_->get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  append(state, newest_.load());
  return nullptr;
}

void PerfMap::append(State& state, const Line* newest) {
  const std::string path = directory_ + "/perf-" + std::to_string(state.pid) + ".map";
  if (state.fd < 0) state.fd = open_map(path);
  std::vector<const Line*> lines;
  for (const Line* line = newest; line != state.written; line = line->older) lines.push_back(line);
  state.written = newest;
  std::string text;  // in one write, so that no other JIT's line gets between
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += (*line)->text;
  if (!write_all(state.fd, text.data(), text.size())) fail(kWhat, "write", path, errno);
}

}  // namespace quern::jit
