#include "ops/environment.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace quern::inline v0 {
namespace {

// secure_getenv: a program that runs with more rights than its user must not be made to write
// dumps.
const char* variable(const char* name) noexcept {
  return secure_getenv(name);
}

Status invalid(const char* text, int64_t value = 0) noexcept {
  return Status(StatusCode::kInvalidArgument, text, value);
}

Status parse_max_isa(std::string_view text, IsaLevel* out) noexcept {
  for (const IsaLevel level : {IsaLevel::kNone, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    if (text == to_string(level)) {
      *out = level;
      return Status();
    }
  }
  return invalid("environment: QUERN_MAX_ISA must be amx, avx512 or none");
}

Status parse_jit(std::string_view text, bool* out) noexcept {
  if (text != "0" && text != "1") return invalid("environment: QUERN_JIT must be 0 or 1");
  *out = text == "1";
  return Status();
}

bool verbose_bits(std::string_view word, uint32_t* out) noexcept {
  constexpr struct {
    std::string_view word;
    uint32_t bits;
  } kWords[] = {{"error", kVerboseError},
                {"dispatch", kVerboseDispatch},
                {"create", kVerboseCreate},
                {"exec", kVerboseExec},
                {"all", kVerboseAll}};
  for (const auto& entry : kWords) {
    if (word == entry.word) {
      *out |= entry.bits;
      return true;
    }
  }
  return false;
}

Status parse_verbose(std::string_view text, uint32_t* out) noexcept {
  if (text == "off") {
    *out = kVerboseNone;
    return Status();
  }
  uint32_t bits = 0;
  for (size_t at = 0;;) {
    const size_t comma = text.find(',', at);
    if (!verbose_bits(text.substr(at, comma - at), &bits)) {
      return invalid(
          "environment: QUERN_VERBOSE must be off, or error, dispatch, create, exec, all "
          "joined by commas; not so at byte {0}",
          static_cast<int64_t>(at));
    }
    if (comma == std::string_view::npos) break;
    at = comma + 1;
  }
  *out = bits;
  return Status();
}

Status parse_dump_dir(const char* text, std::string* out) {
  if (!is_writable_directory(text)) {
    return invalid(
        "environment: QUERN_JIT_DUMP must be an existing directory that can be written "
        "to");
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
  return status;
}

}  // namespace quern::inline v0
