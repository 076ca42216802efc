#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model_smoke/kv_scales.h"
#include "model_smoke/linear.h"
#include "quern/isa.h"

namespace quern::smoke {

/// Switches that every command which runs a model takes (design.md section 7).
struct CommonOptions {
  std::string model;
  int threads = 0;  ///< 0: the CPUs this process may use
  std::string isa = "auto";
  bool emulate_amx = false;
  std::string backend = "jit";
  std::string act;  ///< empty: the backend's default
  std::string kv_cache = "auto";
  std::string json;  ///< empty: none

  Backend parsed_backend() const;
  std::optional<ActMode> parsed_act() const;
  /// The level --isa asks for; none for auto.
  std::optional<IsaLevel> parsed_isa() const;
  KvCacheChoice parsed_kv_cache() const;
};

/// What a model is given: one of the two.
struct PromptOptions {
  std::optional<std::string> text;
  std::optional<std::vector<int32_t>> ids;

  /// Throws InputError unless exactly one is there.
  void require_one(const std::string& command) const;
};

struct GenerateOptions {
  CommonOptions common;
  PromptOptions prompt;
  int64_t max_new_tokens = 64;
  bool raw = false;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  uint64_t seed = 0;
};

struct VerifyOptions {
  CommonOptions common;
  std::string goldens;  ///< empty: goldens.safetensors in the model directory
  std::string dump_logits;
};

struct CompareOptions {
  CommonOptions common;
  PromptOptions prompt;
  int64_t decode_steps = 1;
  bool summary = false;  ///< no line for each op, only for those that differ
};

struct InspectOptions {
  CommonOptions common;
};

struct DoctorOptions {
  std::string json;
};

// The commands. Each returns the exit code, 0 or 1, and throws InputError (exit 2).
int run_generate(const GenerateOptions& options);
int run_verify(const VerifyOptions& options);
int run_compare(const CompareOptions& options);
int run_inspect(const InspectOptions& options);
int run_doctor(const DoctorOptions& options);

/// Reads the command line and runs what it asks for; the exit code. Throws what the commands throw.
/// The only place that knows CLI11. Numbers are read by option_values.h: what CLI11 makes of "nan",
/// "-1" or a number that does not fit is not an error everywhere.
int run_command_line(int argc, char** argv);

}  // namespace quern::smoke
