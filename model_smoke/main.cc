#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/options.h"
#include "quern/version.h"

namespace {

using namespace quern::smoke;

void add_generate(CLI::App& app, GenerateOptions& o) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text");
  add_common_options(*command, o.common);
  command->add_option("-p,--prompt", o.prompt, "The text")->each([&o](const std::string&) {
    o.has_prompt = true;
  });
  command->add_option("--ids", o.ids, "Token ids instead of a text: 1,2,3")
      ->delimiter(',')
      ->each([&o](const std::string&) { o.has_ids = true; });
  command->add_option("-n", o.max_new_tokens, "At most this many new tokens")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--raw", o.raw, "The prompt goes in as it is, without a chat template");
  command->add_option("--temp", o.temperature, "Temperature; 0 takes the likeliest")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-k", o.top_k, "Only the K likeliest; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  command->add_option("--top-p", o.top_p, "Only the fewest that reach P together")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", o.seed, "Of the random choice")->capture_default_str();
}

void add_verify(CLI::App& app, VerifyOptions& o) {
  CLI::App* command = app.add_subcommand("verify", "Compare with golden logits and tokens");
  add_common_options(*command, o.common);
  command->add_option("--goldens", o.goldens,
                      "Golden file (default: goldens.safetensors of the model)");
  command->add_option("--dump-logits", o.dump_logits,
                      "Write promptI.logits [T, vocab] to this safetensors file");
}

int run(int argc, char** argv) {
  CLI::App app{"Runs a checkpoint and shows whether the kernels are right", "quern-smoke"};
  app.set_version_flag("--version", QUERN_VERSION);
  app.require_subcommand(1);
  GenerateOptions generate;
  VerifyOptions verify;
  DoctorOptions doctor;
  add_generate(app, generate);
  add_verify(app, verify);
  CLI::App* command = app.add_subcommand("doctor", "What this machine can run, and why not more");
  command->add_option("--json", doctor.json, "Write the report to this file too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // CLI11 has a code for every mistake; this program has one for all, 0 for --help.
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (app.got_subcommand("generate")) return run_generate(generate);
  if (app.got_subcommand("verify")) return run_verify(verify);
  return run_doctor(doctor);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run(argc, argv);
    // Results that did not reach their file (a full disk, a closed pipe) are no success.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    fmt::print(stderr, "quern-smoke: standard output could not be written\n");
    return 2;
  } catch (const InputError& e) {
    fmt::print(stderr, "quern-smoke: {}\n", e.what());
  } catch (const std::exception& e) {
    fmt::print(stderr, "quern-smoke: {}\n", e.what());
  }
  return 2;
}
