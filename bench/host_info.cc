#include "bench/host_info.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <sstream>

#include "bench_revision.h"
#include "quern/version.h"

namespace quern::bench {
namespace {

std::string isa_line(const Context& ctx) {
  const IsaReport& report = ctx.isa_report();
  std::string out =
      fmt::format("{} in use, {} on this machine (bf16 {}, vbmi {}, fp16 {})", to_string(ctx.isa()),
                  to_string(report.level), report.avx512_bf16 ? "yes" : "no",
                  report.avx512_vbmi ? "yes" : "no", report.avx512_fp16 ? "yes" : "no");
  for (const IsaStage& stage : report.stages) {
    if (!stage.passed) out += fmt::format("; {}: {}", stage.name, stage.detail);
  }
  return out;
}

/// Debian's package was built without NDEBUG. Only the JSON reporter knows, so ask that one.
std::string benchmark_line() {
  benchmark::BenchmarkReporter::Context context;
  std::ostringstream text;
  benchmark::JSONReporter reporter;
  reporter.SetOutputStream(&text);
  reporter.SetErrorStream(&text);
  reporter.ReportContext(context);
  const bool debug = text.str().find("\"library_build_type\": \"debug\"") != std::string::npos;
  return debug ? "library built as DEBUG (Debian's package is); it times nothing here, quern-bench "
                 "does its own timing"
               : "library built as release";
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.empty() ? "unknown" : line;
}

std::string kernel_line() {
  utsname name{};
  return uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "unknown";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> host_info(const ContextSet& contexts) {
  const Context& ctx = contexts.plain();
  return {
      {"cpu", fmt::format("{}, {} usable", ctx.isa_report().cpu, contexts.cpu_count())},
      {"isa", isa_line(ctx)},
      {"kernel", kernel_line()},
      {"huge pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
      {"quern", fmt::format("{}, revision {}, {} build, {}", QUERN_VERSION, QUERN_BENCH_REVISION,
                            QUERN_BENCH_BUILD_TYPE, __VERSION__)},
      {"google benchmark", benchmark_line()},
  };
}

std::string revision() {
  return QUERN_BENCH_REVISION;
}

}  // namespace quern::bench
