#pragma once

#include <sched.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/peer.h"

namespace quern::bench {

/// A peer in a child process, because a thread team of its own that spins beside ours slows both
/// tenfold. The child is stopped (SIGSTOP) except inside setup() and block(), where this process
/// waits for its answer. Lines over two pipes:
///
///   child   hello <name and version>                        once
///   parent  setup <cold bytes> <problem>  child  ready <kernel> | none <reason>
///   parent  block <s> <calls> <warm s>    child  time <median us> <mad us> <calls> | none <reason>
///
/// A cap of the instruction set holds for a whole process, so a row with another one than the row
/// before gets a new child. A child that dies, answers nonsense or is silent for too long is
/// reported and started afresh for the next problem, a few times.
class PeerProcess final : public Peer {
 public:
  struct Command {
    std::vector<std::string> argv;
    std::vector<std::string> environment;  ///< NAME=value, complete
    double timeout_seconds = 120;          ///< for one answer
    PeerIsa isa = PeerIsa::kRow;
    size_t cold_bytes = 0;  ///< of the weight copies of a cold problem
  };

  /// Starts the child. Call it before any thread exists.
  explicit PeerProcess(Command command);
  ~PeerProcess() override;
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  std::string name() const override { return name_; }
  bool setup(const Problem& problem) override;
  std::optional<Stats> block(const BlockBudget& budget) override;
  std::string kernel() const override { return kernel_; }
  std::string isa_cap() const override { return cap_; }
  std::string note() const override { return note_; }
  pid_t pid() const override { return pid_ > 0 ? pid_ : 0; }

 private:
  bool start();
  /// Starts the child that the problem needs if it is not there; false: there is none.
  bool ensure_child(const Problem& problem);
  void stop();
  /// Lets the child run until it has answered. Empty when it did not; note_ then says why.
  std::string ask(const std::string& line);
  std::string read_line();
  void lose(const std::string& why);
  void lose_closed();

  Command command_;
  cpu_set_t cpus_;  ///< of the process before anything was pinned
  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  int starts_left_ = 4;
  std::string cap_;
  std::string buffered_;
  std::string name_;
  std::string kernel_;
  std::string note_;
};

/// The environment of an OpenMP peer that gets its best: threads bound and spinning between
/// regions, no OPENBLAS_* variable and no cap of oneDNN's instruction set, otherwise ours.
std::vector<std::string> peer_environment(int threads);

/// oneDNN's name for the most it may use beside a row of `level`; empty: everything.
std::string onednn_isa_cap(PeerIsa isa, IsaLevel level);

}  // namespace quern::bench
