#include "model_smoke/options.h"

#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/option_values.h"
#include "quern/version.h"

namespace quern::smoke {
namespace {

constexpr uint64_t kMaxThreads = 1024;
constexpr uint64_t kMaxNewTokens = 1 << 24;
constexpr uint64_t kMaxTopK = 1 << 30;
constexpr double kMaxTemperature = 100;

/// An integer switch; `to` is any integer type that holds `max`.
template <typename Int>
CLI::Option* add_integer(CLI::App& command, const std::string& name, Int& to, uint64_t min,
                         uint64_t max, const std::string& help) {
  return command
      .add_option_function<std::string>(
          name,
          [name, &to, min, max](const std::string& text) {
            to = static_cast<Int>(parse_integer(name, text, min, max));
          },
          help)
      ->type_name("INT");
}

void add_number(CLI::App& command, const std::string& name, double& to, double max,
                const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [name, &to, max](const std::string& text) { to = parse_number(name, text, 0, max); },
          help)
      ->type_name("NUMBER")
      ->default_str(CLI::detail::to_string(to));
}

/// A file name; an empty one (an unset shell variable) is a mistake, not "no file".
void add_file(CLI::App& command, const std::string& name, std::string& to,
              const std::string& help) {
  command.add_option(name, to, help)
      ->type_name("FILE")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return std::string(text.empty() ? "a name is missing" : "");
          },
          ""));
}

void add_common(CLI::App& command, CommonOptions& o) {
  command.add_option("-m,--model", o.model, "Model directory (config.json, *.safetensors)")
      ->required();
  add_integer(command, "--threads", o.threads, 1, kMaxThreads,
              "Threads (default: the CPUs this process may use)");
  command.add_option("--isa", o.isa, "Kernel level")
      ->check(CLI::IsMember({"auto", "amx", "avx512"}));
  command.add_flag("--emulate-amx", o.emulate_amx, "Run AMX kernels on an emulator");
  command.add_option("--backend", o.backend, "What multiplies: generated kernels or scalar ops")
      ->check(CLI::IsMember({"jit", "reference"}));
  command.add_option("--act", o.act, "Activations of the projections")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  command
      .add_option("--kv-cache", o.kv_cache,
                  "Key/value cache: as the checkpoint declares, as the activations, or e4m3")
      ->check(CLI::IsMember({"auto", "bf16", "fp8"}));
  add_file(command, "--json", o.json, "Write the results to this file too");
}

void add_prompt(CLI::App& command, PromptOptions& o) {
  command.add_option("-p,--prompt", o.text, "The text");
  command
      .add_option_function<std::string>(
          "--ids", [&o](const std::string& text) { o.ids = parse_ids("--ids", text); },
          "Token ids instead of a text: 1,2,3")
      ->type_name("IDS");
}

void add_generate(CLI::App& app, GenerateOptions& o) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text");
  add_common(*command, o.common);
  add_prompt(*command, o.prompt);
  add_integer(*command, "-n", o.max_new_tokens, 1, kMaxNewTokens, "At most this many new tokens")
      ->default_str("64");
  command->add_flag("--raw", o.raw, "The prompt goes in as it is, without a chat template");
  add_number(*command, "--temp", o.temperature, kMaxTemperature,
             "Temperature; 0 takes the likeliest");
  add_integer(*command, "--top-k", o.top_k, 0, kMaxTopK, "Only the K likeliest; 0: all")
      ->default_str("0");
  add_number(*command, "--top-p", o.top_p, 1, "Only the fewest that reach P together");
  add_integer(*command, "--seed", o.seed, 0, UINT64_MAX, "Of the random choice")->default_str("0");
}

void add_verify(CLI::App& app, VerifyOptions& o) {
  CLI::App* command = app.add_subcommand("verify", "Compare with golden logits and tokens");
  add_common(*command, o.common);
  add_file(*command, "--goldens", o.goldens,
           "Golden file (default: goldens.safetensors of the model)");
  add_file(*command, "--dump-logits", o.dump_logits,
           "Write promptI.logits [T, vocab] to this safetensors file");
}

void add_compare(CLI::App& app, CompareOptions& o) {
  CLI::App* command =
      app.add_subcommand("compare", "Hold every op of a forward pass against the reference");
  add_common(*command, o.common);
  add_prompt(*command, o.prompt);
  add_integer(*command, "-n", o.decode_steps, 0, kMaxNewTokens, "Decode steps behind the prompt")
      ->default_str("1");
  command->add_flag("--summary", o.summary, "No line for each op, only for those that differ");
}

void add_inspect(CLI::App& app, InspectOptions& o) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Every module: format, shape, op, kernel, fused or not and why");
  add_common(*command, o.common);
}

void add_doctor(CLI::App& app, DoctorOptions& o) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine can run, and why not more");
  add_file(*command, "--json", o.json, "Write the report to this file too");
}

struct Options {
  GenerateOptions generate;
  VerifyOptions verify;
  CompareOptions compare;
  InspectOptions inspect;
  DoctorOptions doctor;
};

void add_commands(CLI::App& app, Options& options) {
  add_generate(app, options.generate);
  add_verify(app, options.verify);
  add_compare(app, options.compare);
  add_inspect(app, options.inspect);
  add_doctor(app, options.doctor);
}

/// The command comes first. CLI11 takes an unknown one for a stray argument and then complains that
/// a command is missing, whatever was typed.
void require_command(const CLI::App& app, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  for (const char* word : {"-h", "--help", "--version"}) {
    if (first == word) return;
  }
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (first == command->get_name()) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  throw InputError("command", "", "one of " + names, argc > 1 ? "\"" + first + "\"" : "no argument",
                   "see quern-smoke --help");
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app{"Runs a checkpoint and shows whether the kernels are right", "quern-smoke"};
  app.set_version_flag("--version", QUERN_VERSION);
  app.require_subcommand(1);
  Options options;
  add_commands(app, options);
  require_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // CLI11 has a code for every mistake; this program has one for all, 0 for --help.
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (app.got_subcommand("generate")) return run_generate(options.generate);
  if (app.got_subcommand("verify")) return run_verify(options.verify);
  if (app.got_subcommand("compare")) return run_compare(options.compare);
  if (app.got_subcommand("inspect")) return run_inspect(options.inspect);
  return run_doctor(options.doctor);
}

void PromptOptions::require_one(const std::string& command) const {
  if (text.has_value() != ids.has_value()) return;
  throw InputError(command, "", "one of -p TEXT and --ids 1,2,3", text ? "both" : "neither");
}

Backend CommonOptions::parsed_backend() const {
  return backend == "reference" ? Backend::kReference : Backend::kJit;
}

std::optional<ActMode> CommonOptions::parsed_act() const {
  if (act.empty()) return std::nullopt;
  if (act == "f32") return ActMode::kF32;
  return act == "bf16" ? ActMode::kBF16 : ActMode::kInt8;
}

std::optional<IsaLevel> CommonOptions::parsed_isa() const {
  if (isa == "auto") return std::nullopt;
  return isa == "amx" ? IsaLevel::kAmx : IsaLevel::kAvx512;
}

KvCacheChoice CommonOptions::parsed_kv_cache() const {
  if (kv_cache == "auto") return KvCacheChoice::kAuto;
  return kv_cache == "fp8" ? KvCacheChoice::kFp8 : KvCacheChoice::kBF16;
}

}  // namespace quern::smoke
