#include "tests/model_smoke/smoke_binary.h"

#include <sys/wait.h>

#include <cstdlib>

#include "quern/context.h"
#include "tests/model_smoke/temp_dir.h"
#include "tests/support/source_dir.h"

namespace quern::smoke::test {

const std::string kSmokeBinary = QUERN_SMOKE_BINARY;

std::string docs_model() {
  return "-m " + quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs";
}

Outcome smoke(const std::string& arguments, const std::string& environment) {
  const TempDir scratch;
  const std::string command = environment + " '" + QUERN_SMOKE_BINARY + "' " + arguments + " > " +
                              scratch.file("out") + " 2> " + scratch.file("err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000, read_file(scratch.file("out")),
          read_file(scratch.file("err"))};
}

bool jit_runs() {
  return Context().isa() != IsaLevel::kNone;
}

}  // namespace quern::smoke::test
