#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "jit/code_registry.h"
#include "jit/per_process.h"

namespace quern::jit {

/// Appends "<address> <bytes> <name>" in hexadecimal for each kernel to /tmp/perf-PID.map, which is
/// where `perf report` looks for the names of code that no file holds.
///
/// The file may be shared with other JITs of this process, so it is only appended to.
/// One that is older than the process was left by an earlier process of the same number, and is
/// emptied. It is created for its owner alone, and a link, anything but a plain file, and a file
/// that is not ours or that others may write are refused. A forked child writes to a file of its
/// own and begins it with the kernels that it inherited, at the first kernel it makes itself.
/// Throws std::runtime_error with path and cause.
class PerfMap final : public CodeListener {
 public:
  /// perf looks in /tmp only; tests look elsewhere.
  explicit PerfMap(std::string directory = "/tmp");
  ~PerfMap() override;
  KernelRecord published(const GeneratedCode& code, const Kernel& kernel) override;

 private:
  struct Line {
    std::string text;
    Line* older;
  };
  struct State;
  void append(State& state, const Line* newest);

  std::string directory_;
  // A list without a lock, which a child can walk whatever its parent's threads were doing.
  std::atomic<Line*> newest_{nullptr};
  std::unique_ptr<PerProcess<State>> state_;
};

}  // namespace quern::jit
