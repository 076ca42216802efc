#include <cstdio>
#include <exception>

#include <fmt/format.h>

#include "model_smoke/input_error.h"
#include "model_smoke/options.h"

using namespace quern::smoke;

int main(int argc, char** argv) {
  try {
    const int code = run_command_line(argc, argv);
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
