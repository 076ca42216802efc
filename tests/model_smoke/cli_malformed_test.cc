// The malformed corpus through the program: exit code 2, a message that names file, key and reason,
// bounded time and memory (reliability.md L1).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/model_smoke/malformed_case.h"
#include "tests/model_smoke/smoke_binary.h"

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace quern::smoke::test {
namespace {

constexpr rlim_t kCpuSeconds = kSanitized ? 60 : 10;
constexpr int64_t kMemoryBesideFiles = 64 << 20;

struct MeasuredOutcome {
  int code = -1;  // exit code, or 1000 + signal
  std::string out, err;
  int64_t peak_bytes = 0;
};

MeasuredOutcome run_smoke(const std::vector<std::string>& arguments) {
  const TempDir scratch;
  const std::string out = scratch.file("out");
  const std::string err = scratch.file("err");
  std::vector<std::string> words = {kSmokeBinary};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit cpu{kCpuSeconds, kCpuSeconds};
    setrlimit(RLIMIT_CPU, &cpu);
    const auto redirect = [](const std::string& path, int to) {
      const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      return fd >= 0 && dup2(fd, to) == to;
    };
    if (!redirect(out, 1) || !redirect(err, 2)) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  MeasuredOutcome o;
  int status = 0;
  rusage use{};
  if (child < 0 || wait4(child, &status, 0, &use) != child) return o;
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  o.out = read_file(out);
  o.err = read_file(err);
  o.peak_bytes = int64_t{use.ru_maxrss} * 1024;
  return o;
}

MeasuredOutcome generate(const std::string& dir) {
  return run_smoke(
      {"generate", "-m", dir, "-p", hostile_text(), "-n", "1", "--backend", "reference"});
}

int64_t bytes_in(const std::string& dir) {
  int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (!entry.is_symlink() && entry.is_regular_file()) {  // a link may be a loop
      total += static_cast<int64_t>(entry.file_size());
    }
  }
  return total;
}

TEST(CliMalformed, GoodModelsRun) {
  for (const bool int8 : {false, true}) {
    const TempDir dir;
    (int8 ? tiny_int8_model() : tiny_model()).write(dir);
    const MeasuredOutcome o = generate(dir.path());
    EXPECT_EQ(o.code, 0) << o.err;
  }
}

TEST(CliMalformed, EveryCaseExitsWith2AndNamesTheFault) {
  // What the program takes before it reads a model.
  const int64_t base = run_smoke({"--version"}).peak_bytes;
  for (const MalformedCase& c : all_malformed()) {
    SCOPED_TRACE(c.name);
    TestModel model = c.int8 ? tiny_int8_model() : tiny_model();
    c.bend(&model);
    const TempDir dir;
    model.write(dir);
    const MeasuredOutcome o = generate(dir.path());
    EXPECT_EQ(o.code, 2) << o.err;
    for (const std::string& part : c.says) {
      EXPECT_NE(o.err.find(part), std::string::npos) << "no \"" << part << "\" in: " << o.err;
    }
    EXPECT_TRUE(o.out.empty()) << o.out;
    if (!kSanitized) {
      EXPECT_LT(o.peak_bytes, base + kMemoryBesideFiles + bytes_in(dir.path()));
    }
  }
}

TEST(CliMalformed, NoDirectory) {
  const MeasuredOutcome o = generate("/nonexistent/model");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("/nonexistent/model"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace quern::smoke::test
