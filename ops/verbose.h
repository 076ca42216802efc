#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/problem_text.h"
#include "ops/process_lock.h"
#include "ops/text_writer.h"
#include "quern/context.h"
#include "quern/problem.h"

namespace quern::inline v0 {

/// One line to be. Only views: nothing is copied or allocated.
struct VerboseLine {
  VerboseFlags event = kVerboseNone;  ///< exactly one bit
  std::string_view kernel;            ///< empty: "-"
  const Problem* problem = nullptr;
  ProblemOf of = ProblemOf::kCall;  ///< what the problem names
  int threads = 0;                  ///< 0: "-"
  int64_t ns = -1;                  ///< time it took; negative: "-"
  std::string_view detail;          ///< a ninth field when not empty: reason, message, size
};

/// Writes the lines
///   quern_verbose,v1,<event>,<op>,<kernel>,<problem>,thr<N>,<ms>[,<detail>]
/// of one context to its sink; what does not apply is "-". The first line names the columns and the
/// second says what the context was made with. A comma or line break inside a field becomes ';', so
/// that a line always splits. Thread-safe: the sink is called under a lock.
class Verbose {
 public:
  /// `about` is the detail of the second line.
  Verbose(uint32_t flags, VerboseSink sink, void* user, std::string about);

  bool on(VerboseFlags event) const noexcept { return (flags_ & event) != 0; }
  /// Does nothing when the event is off. Allocates nothing.
  void write(const VerboseLine& line) noexcept;
  /// An error line whatever the flags are: for what was asked for and could not be done where no
  /// call is left to fail (a dump file).
  void write_always(std::string_view op, std::string_view detail) noexcept;

 private:
  void emit(std::string_view event, std::string_view op, const VerboseLine& line) noexcept;
  void put(TextWriter* text) noexcept;

  const uint32_t flags_;
  const VerboseSink sink_;
  void* const user_;
  const std::string about_;
  ProcessLock lock_;
  bool header_written_ = false;
};

}  // namespace quern::inline v0
