#include "model_smoke/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/smoke_binary.h"

namespace quern::smoke {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

size_t entries_in(const std::string& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

TEST(OutputFile, IsThereOnlyWhenItIsWhole) {
  const TempDir dir;
  {
    const OutputFile file("--json", dir.file("out"));
    EXPECT_EQ(entries_in(dir.path()), 0u);  // checked, nothing left behind
    file.write("first\n");
  }
  EXPECT_EQ(test::read_file(dir.file("out")), "first\n");
  const OutputFile file("--json", dir.file("out"));
  EXPECT_THROW(file.write([](std::ostream& out) {
    out << "half";
    out.setstate(std::ios::failbit);
  }),
               InputError);
  EXPECT_EQ(test::read_file(dir.file("out")), "first\n");  // the old content is still there
  file.write("second\n");
  EXPECT_EQ(test::read_file(dir.file("out")), "second\n");
  EXPECT_EQ(entries_in(dir.path()), 1u);
}

TEST(OutputFile, ABadPathIsRefusedBeforeTheWork) {
  const TempDir dir;
  for (const std::string& path :
       {std::string("/nonexistent/dir/x"), dir.path(), dir.file("no_dir") + "/x", std::string()}) {
    try {
      const OutputFile file("--json", path);
      ADD_FAILURE() << "accepted \"" << path << "\"";
    } catch (const InputError& e) {
      EXPECT_EQ(e.file, "--json");
      EXPECT_EQ(e.key, path);
    }
  }
}

TEST(OutputFile, ALinkStaysALink) {
  const TempDir dir;
  dir.write("real", "old");
  fs::create_symlink("real", dir.file("link"));
  OutputFile("--json", dir.file("link")).write("new");
  EXPECT_TRUE(fs::is_symlink(dir.file("link")));
  EXPECT_EQ(test::read_file(dir.file("real")), "new");
}

TEST(OutputFile, ADeviceStaysADevice) {
  OutputFile("--json", "/dev/null").write("x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(OutputFile("--json", "/dev/full").write("x"), InputError);
}

TEST(OutputFile, CommandsCheckTheirFilesFirst) {
  for (const std::string& arguments :
       {"generate " + test::docs_model() + " -p x -n 2 --backend reference --json /nonexistent/x",
        "verify " + test::docs_model() + " --backend reference --json /nonexistent/x",
        "verify " + test::docs_model() + " --backend reference --dump-logits /nonexistent/x",
        "verify " + test::docs_model() + " --json /tmp/x --dump-logits /tmp/x",
        std::string("doctor --json /nonexistent/x")}) {
    const test::Outcome o = test::smoke(arguments);
    EXPECT_EQ(o.code, 2) << arguments;
    EXPECT_TRUE(o.out.empty()) << arguments << ": " << o.out;  // nothing ran
    EXPECT_EQ(o.err.find("quern-smoke: --"), 0u) << o.err;
  }
}

/// Renaming over what standard output is redirected to would lose what was printed.
TEST(OutputFile, JsonMayGoToStandardOutput) {
  const test::Outcome o = test::smoke("generate " + test::docs_model() +
                                      " --ids 1 -n 1 --backend reference --json " + "/dev/stdout");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("\"command\": \"generate\""), std::string::npos) << o.out;
}

}  // namespace
}  // namespace quern::smoke
