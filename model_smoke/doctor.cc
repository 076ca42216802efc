#include <optional>
#include <string>

#include <fmt/format.h>

#include "model_smoke/host_info.h"
#include "model_smoke/json_out.h"
#include "model_smoke/options.h"
#include "model_smoke/output_file.h"
#include "model_smoke/session.h"
#include "quern/bf16_gemm.h"
#include "quern/context.h"
#include "quern/tuning.h"
#include "quern/version.h"

namespace quern::smoke {
namespace {

/// Lines to print and the same as JSON, in one order.
struct Report {
  JsonOut json = JsonOut::object();

  void line(const std::string& key, const std::string& value) {
    json.set(key, value);
    fmt::print("{:<22} {}\n", key, value);
  }
};

std::string mib(const std::optional<uint64_t>& bytes) {
  return bytes ? fmt::format("{} MiB", *bytes >> 20) : "unknown";
}

void report_isa(const Context& ctx, Report& report) {
  const IsaReport& isa = ctx.isa_report();
  report.line("cpu", isa.cpu);
  JsonOut stages = JsonOut::array();
  for (const IsaStage& stage : isa.stages) {
    fmt::print("  {} {:<20} {}\n", stage.passed ? "yes" : "NO ", stage.name, stage.detail);
    stages.push_back(JsonOut::object(
        {{"name", stage.name}, {"passed", stage.passed}, {"detail", stage.detail}}));
  }
  report.json.set("stages", stages);
  report.line("machine level", to_string(isa.level));
  report.line("level in use", to_string(ctx.isa()));
  report.line(
      "optional",
      fmt::format("avx512_bf16 {}, avx512_vbmi {}, avx512_fp16 {}", isa.avx512_bf16 ? "yes" : "no",
                  isa.avx512_vbmi ? "yes" : "no", isa.avx512_fp16 ? "yes" : "no"));
}

void report_host(const HostInfo& host, Report& report) {
  report.line("cpus", fmt::format("{} online, {} in the affinity mask", host.online_cpus,
                                  host.affinity_cpus));
  report.line("cgroup cpu quota",
              host.cgroup_cpus ? fmt::format("{:.2f} ({})", *host.cgroup_cpus, host.cgroup_source)
                               : "none");
  report.line("default threads", std::to_string(usable_cpus(host)));
  report.line("memory",
              fmt::format("{}, available {}, cgroup limit {}", mib(host.memory_bytes),
                          mib(host.memory_available_bytes),
                          host.cgroup_memory_bytes ? mib(host.cgroup_memory_bytes) : "none"));
  report.line("transparent huge pages",
              host.transparent_huge_pages.empty() ? "unknown" : host.transparent_huge_pages);
  const bool ftz = (host.mxcsr & 0x8000u) != 0, daz = (host.mxcsr & 0x40u) != 0;
  report.line("mxcsr", fmt::format("{:#06x} (flush to zero {}, denormals are zero {}); calls set "
                                   "their own and restore it",
                                   host.mxcsr, ftz ? "on" : "off", daz ? "on" : "off"));
}

/// Makes a small plan: the whole way from description to executable code.
bool report_kernels(const Context& ctx, Report& report) {
  const ContextOptions& options = ctx.options();
  report.line("jit", options.jit ? "on" : "off (QUERN_JIT=0)");
  report.line("tuning database",
              options.tuning == nullptr ? "compiled-in defaults" : options.tuning->name());
  Bf16GemmDesc desc;
  desc.n = 16;
  desc.k = 32;
  const Result<Bf16Gemm> plan = Bf16Gemm::create(ctx, desc);
  if (!plan.ok()) {
    report.line("executable memory", "no plan can be made: " + plan.status().message());
    return false;
  }
  const ContextStats stats = ctx.stats();
  report.line("executable memory", fmt::format("ok: {} kernels, {} bytes, generated in {:.2f} ms",
                                               stats.kernels_generated, stats.code_bytes,
                                               static_cast<double>(stats.generate_ns) * 1e-6));
  return true;
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  std::optional<OutputFile> json;
  if (!options.json.empty()) json.emplace("--json", options.json);
  // A variable nobody understands is bad input, not a state of the machine: exit code 2.
  const Context context = context_from_environment({});
  Report report;
  report.line("quern", QUERN_VERSION);
  report_isa(context, report);
  report_host(read_host_info(), report);
  const bool healthy = report_kernels(context, report);
  report.line("verdict", healthy ? "kernels can run here"
                                 : "kernels cannot run here; --backend reference can");
  if (json) json->write(report.json.text());
  return healthy ? 0 : 1;
}

}  // namespace quern::smoke
