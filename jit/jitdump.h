#pragma once

#include <memory>
#include <string>

#include "jit/code_registry.h"
#include "jit/per_process.h"

namespace quern::jit {

/// Writes jit-PID.dump, the format that `perf inject --jit` turns into an ELF file for each kernel,
/// so that `perf annotate` shows instructions (Linux: tools/perf/Documentation/
/// jitdump-specification.txt). Times are CLOCK_MONOTONIC: record with `perf record -k 1`.
///
/// For each kernel a JIT_CODE_DEBUG_INFO record, which gives the sections of the generator as
/// source lines (file: the section's name, line: its number from 1), then JIT_CODE_LOAD. The first
/// page of the file is mapped executable for as long as the file is open: this is how perf learns
/// of the file. It is made at the first kernel, for its owner alone; one of an earlier process with
/// the same number is replaced and a link is not followed. A forked child writes a file of its own
/// about the kernels that it makes itself. A file always holds whole records: what did not fit is
/// cut off again. Throws std::runtime_error with path and cause.
class JitDump final : public CodeListener {
 public:
  explicit JitDump(std::string directory);
  ~JitDump() override;  ///< writes JIT_CODE_CLOSE
  KernelRecord published(const GeneratedCode& code, const Kernel& kernel) override;

 private:
  struct State;
  void open(State& state) const;

  std::string directory_;
  std::unique_ptr<PerProcess<State>> state_;
};

/// perf wants one file a process, so every context that asks for the same directory shares one,
/// until the process ends.
std::shared_ptr<JitDump> process_jitdump(const std::string& directory);

}  // namespace quern::jit
