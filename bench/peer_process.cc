#include "bench/peer_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>

extern char** environ;

namespace quern::bench {
namespace {

bool starts_with(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

std::string after_word(const std::string& line) {
  const size_t space = line.find(' ');
  return space == std::string::npos ? "" : line.substr(space + 1);
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("peer process died of signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return fmt::format("peer process exited with code {}", WEXITSTATUS(status));
}

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

/// Under `chrt -f` the peer's spinning threads would keep us, of the same priority, off their CPU
/// even when its answer is there: one step below, we always get through.
void step_below_parent() {
  const int policy = sched_getscheduler(0);
  sched_param param{};
  if ((policy != SCHED_FIFO && policy != SCHED_RR) || sched_getparam(0, &param) != 0) return;
  if (param.sched_priority <= sched_get_priority_min(policy)) return;
  --param.sched_priority;
  sched_setscheduler(0, policy, &param);
}

/// Only calls that are allowed between fork and exec.
[[noreturn]] void become_child(int in, int out, const cpu_set_t& cpus, char* const* argv,
                               char* const* env, pid_t parent) {
  // A stopped child must not outlive us.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sched_setaffinity(0, sizeof cpus, &cpus);
  step_below_parent();
  signal(SIGPIPE, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  execve(argv[0], argv, env);
  _exit(127);
}

}  // namespace

PeerProcess::PeerProcess(Command command) : command_(std::move(command)) {
  signal(SIGPIPE, SIG_IGN);  // a dead child is an answer, not the end of us
  CPU_ZERO(&cpus_);
  if (sched_getaffinity(0, sizeof cpus_, &cpus_) != 0) CPU_SET(0, &cpus_);
  cap_ = onednn_isa_cap(command_.isa, IsaLevel::kAvx512);
  start();
}

PeerProcess::~PeerProcess() {
  lose("closed");
}

bool PeerProcess::start() {
  --starts_left_;
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) throw std::runtime_error("pipe: no file descriptors left");
  if (pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe: no file descriptors left");
  const std::vector<char*> argv = c_strings(command_.argv);
  std::vector<std::string> environment = command_.environment;
  if (!cap_.empty()) {
    environment.push_back("DNNL_MAX_CPU_ISA=" + cap_);  // of every version
    environment.push_back("ONEDNN_MAX_CPU_ISA=" + cap_);
  }
  const std::vector<char*> env = c_strings(environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become_child(in[0], out[1], cpus_, argv.data(), env.data(), parent);
  close(in[0]);
  close(out[1]);
  to_child_ = in[1];
  from_child_ = out[0];
  buffered_.clear();
  if (pid_ < 0) {
    lose("peer process could not be started");
    return false;
  }
  const std::string hello = read_line();
  if (!starts_with(hello, "hello ")) {
    if (pid_ > 0) lose("peer process did not introduce itself");
    return false;
  }
  name_ = after_word(hello);
  stop();
  return pid_ > 0;
}

void PeerProcess::stop() {
  if (pid_ <= 0) return;
  kill(pid_, SIGSTOP);
  int status = 0;
  if (waitpid(pid_, &status, WUNTRACED) == pid_ && !WIFSTOPPED(status)) {
    pid_ = -1;  // it is reaped already
    lose(describe_exit(status));
  }
}

void PeerProcess::lose(const std::string& why) {
  note_ = why;
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  if (to_child_ >= 0) close(to_child_);
  if (from_child_ >= 0) close(from_child_);
  to_child_ = from_child_ = -1;
}

void PeerProcess::lose_closed() {
  // A closed pipe means that it has exited or is about to; one that does neither is killed.
  for (int i = 0; i < 200; ++i) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      lose(describe_exit(status));
      return;
    }
    usleep(5000);
  }
  lose("peer process closed its pipe");
}

std::string PeerProcess::read_line() {
  const double deadline = microseconds_now() + 1e6 * command_.timeout_seconds;
  while (true) {
    const size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      const std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    const double left = deadline - microseconds_now();
    pollfd poll_fd{from_child_, POLLIN, 0};
    if (left <= 0 || poll(&poll_fd, 1, static_cast<int>(left / 1000) + 1) == 0) {
      lose(fmt::format("peer process gave no answer within {} s", command_.timeout_seconds));
      return "";
    }
    char chunk[4096];
    const ssize_t got = read(from_child_, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      lose_closed();
      return "";
    }
    buffered_.append(chunk, static_cast<size_t>(got));
  }
}

std::string PeerProcess::ask(const std::string& line) {
  if (pid_ <= 0) return "";
  kill(pid_, SIGCONT);
  const std::string message = line + "\n";
  // Shorter than a pipe's buffer: one write takes it all or fails because the child is gone,
  // and read_line() then finds out how.
  (void)!write(to_child_, message.data(), message.size());
  const std::string answer = read_line();
  stop();
  return pid_ > 0 ? answer : "";
}

bool PeerProcess::ensure_child(const Problem& problem) {
  const std::string cap = onednn_isa_cap(command_.isa, problem.isa);
  if (cap != cap_) {
    const bool alive = pid_ > 0;
    cap_ = cap;
    if (alive) {
      lose("closed");
      ++starts_left_;  // nobody's fault
    }
  }
  return pid_ > 0 || (starts_left_ > 0 && start());  // else note_ says why it is gone
}

bool PeerProcess::setup(const Problem& problem) {
  kernel_.clear();
  if (!ensure_child(problem)) return false;
  note_.clear();
  const std::string answer =
      ask(fmt::format("setup {} {}", command_.cold_bytes, to_string(problem)));
  if (answer.empty()) return false;
  if (starts_with(answer, "ready ")) {
    kernel_ = after_word(answer);
    // The cap is an environment variable, which a version may not know or may read otherwise.
    if (cap_.empty() || kernel_.find("amx") == std::string::npos) return true;
    note_ = fmt::format("runs {} in spite of the cap {}", kernel_, cap_);
    return false;
  }
  if (starts_with(answer, "none ")) {
    note_ = after_word(answer);
  } else {
    lose("peer process answered '" + answer + "'");
  }
  return false;
}

std::optional<Stats> PeerProcess::block(const BlockBudget& budget) {
  const std::string answer =
      ask(fmt::format("block {} {} {}", budget.seconds, budget.min_calls, budget.warm_seconds));
  if (answer.empty()) return std::nullopt;
  Stats stats;
  long long count = 0;
  if (sscanf(answer.c_str(), "time %lf %lf %lld", &stats.median, &stats.mad, &count) == 3) {
    stats.count = count;
    return stats;
  }
  if (starts_with(answer, "none ")) {
    note_ = after_word(answer);
  } else {
    lose("peer process answered '" + answer + "'");
  }
  return std::nullopt;
}

std::vector<std::string> peer_environment(int threads) {
  std::vector<std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const bool replaced = starts_with(variable, "OPENBLAS_") || starts_with(variable, "OMP_") ||
                          starts_with(variable, "GOMP_") || starts_with(variable, "KMP_") ||
                          starts_with(variable, "DNNL_MAX_CPU_ISA=") ||
                          starts_with(variable, "ONEDNN_MAX_CPU_ISA=");
    if (!replaced) env.push_back(variable);
  }
  env.push_back("OMP_NUM_THREADS=" + std::to_string(threads));
  env.push_back("OMP_WAIT_POLICY=active");
  env.push_back("OMP_PROC_BIND=true");
  env.push_back("OMP_DYNAMIC=false");
  return env;
}

std::string onednn_isa_cap(PeerIsa isa, IsaLevel level) {
  // Everything of AVX-512 that products of int8 and bf16 use, and nothing of AMX.
  return isa == PeerIsa::kRow && level != IsaLevel::kAmx ? "AVX512_CORE_BF16" : "";
}

}  // namespace quern::bench
