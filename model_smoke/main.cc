#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/options.h"
#include "quern/version.h"

namespace {

using namespace quern::smoke;

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

int run(int argc, char** argv) {
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
