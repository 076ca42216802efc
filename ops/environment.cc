#include "ops/environment.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace quern::inline v0 {
namespace {

// secure_getenv: a program that runs with more rights than its user must not be made to write
// dumps.
const char* variable(const char* name) noexcept {
  return secure_getenv(name);
}

/// `text` ends in "got '{f}'", for the value of the variable.
Status invalid(const char* text, std::string_view value, int64_t at = 0) noexcept {
  return Status::about_file(StatusCode::kInvalidArgument, text, value, at);
}

Status parse_max_isa(std::string_view text, IsaLevel* out) noexcept {
  for (const IsaLevel level : {IsaLevel::kNone, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    if (text == to_string(level)) {
      *out = level;
      return Status();
    }
  }
  return invalid("environment: QUERN_MAX_ISA must be amx, avx512 or none, got '{f}'", text);
}

Status parse_jit(std::string_view text, bool* out) noexcept {
  if (text != "0" && text != "1")
    return invalid("environment: QUERN_JIT must be 0 or 1, got '{f}'", text);
  *out = text == "1";
  return Status();
}

struct Word {
  std::string_view word;
  uint32_t bits;
};
constexpr Word kVerboseWords[] = {{"error", kVerboseError},
                                  {"dispatch", kVerboseDispatch},
                                  {"create", kVerboseCreate},
                                  {"exec", kVerboseExec},
                                  {"all", kVerboseAll}};
constexpr Word kProfileWords[] = {{"perf", kJitProfilePerf},
                                  {"jitdump", kJitProfileJitdump},
                                  {"gdb", kJitProfileGdb},
                                  {"all", kJitProfileAll}};

/// "off", or words of the table joined by commas. `rule` is the error, with {0} for the byte at
/// which the text breaks it and {f} for the text.
Status parse_words(std::string_view text, std::span<const Word> words, const char* rule,
                   uint32_t* out) noexcept {
  uint32_t bits = 0;
  for (size_t at = 0; text != "off";) {
    const size_t comma = text.find(',', at);
    const std::string_view word = text.substr(at, comma - at);
    const auto known =
        std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.word == word; });
    if (known == words.end()) return invalid(rule, text, static_cast<int64_t>(at));
    bits |= known->bits;
    if (comma == std::string_view::npos) break;
    at = comma + 1;
  }
  *out = bits;
  return Status();
}

Status parse_verbose(std::string_view text, uint32_t* out) noexcept {
  return parse_words(text, kVerboseWords,
                     "environment: QUERN_VERBOSE must be off, or error, dispatch, create, exec, "
                     "all joined by commas; not so at byte {0}, got '{f}'",
                     out);
}

Status parse_profile(std::string_view text, uint32_t* out) noexcept {
  return parse_words(text, kProfileWords,
                     "environment: QUERN_JIT_PROFILE must be off, or perf, jitdump, gdb, all "
                     "joined by commas; not so at byte {0}, got '{f}'",
                     out);
}

Status parse_dump_dir(const char* text, std::string* out) {
  if (!is_writable_directory(text)) {
    return invalid(
        "environment: QUERN_JIT_DUMP must be an existing directory that can be written to, got "
        "'{f}'",
        text);
  }
  *out = text;
  return Status();
}

}  // namespace

bool is_writable_directory(const std::string& path) noexcept {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  return access(path.c_str(), W_OK | X_OK) == 0;
}

Status apply_environment(ContextOptions* options) {
  Status status;
  if (const char* v = variable("QUERN_MAX_ISA")) status = parse_max_isa(v, &options->max_isa);
  if (!status.ok()) return status;
  if (const char* v = variable("QUERN_JIT")) status = parse_jit(v, &options->jit);
  if (!status.ok()) return status;
  if (const char* v = variable("QUERN_VERBOSE")) status = parse_verbose(v, &options->verbose);
  if (!status.ok()) return status;
  if (const char* v = variable("QUERN_JIT_DUMP")) {
    status = parse_dump_dir(v, &options->jit_dump_dir);
  }
  if (!status.ok()) return status;
  if (const char* v = variable("QUERN_JIT_PROFILE")) {
    status = parse_profile(v, &options->jit_profile);
  }
  return status;
}

}  // namespace quern::inline v0
