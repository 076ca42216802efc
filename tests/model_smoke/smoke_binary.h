#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "quern/context.h"
#include "tests/model_smoke/temp_dir.h"

namespace quern::smoke::test {

#ifdef QUERN_SMOKE_BINARY

/// The small bf16 model of the tree, as a switch.
inline const std::string kDocsModel =
    std::string("-m ") + QUERN_SOURCE_DIR + "/model_smoke/checkpoints/qwen35_docs";

struct Outcome {
  int code;
  std::string out, err;
};

/// Runs quern-smoke. `arguments` are the test's own literals, so the shell may see them as they
/// are.
inline Outcome smoke(const std::string& arguments, const std::string& environment = "") {
  const TempDir scratch;
  const std::string command = environment + " '" + QUERN_SMOKE_BINARY + "' " + arguments + " > " +
                              scratch.file("out") + " 2> " + scratch.file("err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000, read_file(scratch.file("out")),
          read_file(scratch.file("err"))};
}

#endif

inline bool jit_runs() {
  return Context().isa() != IsaLevel::kNone;
}

}  // namespace quern::smoke::test
