#pragma once

#include <string>

#include "tests/model_smoke/temp_dir.h"

namespace quern::smoke::test {

extern const std::string kSmokeBinary;

/// The small bf16 model of the tree, as a switch.
std::string docs_model();

struct Outcome {
  int code;
  std::string out, err;
};

/// Runs quern-smoke. `arguments` are the test's own literals, so the shell may see them as they
/// are.
Outcome smoke(const std::string& arguments, const std::string& environment = "");

bool jit_runs();

}  // namespace quern::smoke::test
