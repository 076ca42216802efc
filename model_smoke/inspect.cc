#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "model_smoke/json_out.h"
#include "model_smoke/layers/simd_target.h"
#include "model_smoke/options.h"
#include "model_smoke/output_file.h"
#include "model_smoke/plan_text.h"
#include "model_smoke/session.h"

namespace quern::smoke {
namespace {

constexpr char kLayersStayApart[] = "no: norms, RoPE, convolution and delta rule are layers here";

std::string range_text(const PlanText::Rows& r) {
  return r.to == INT64_MAX ? fmt::format("{}..", r.from) : fmt::format("{}..{}", r.from, r.to);
}

JsonOut to_json(const LinearOp& op, const PlanText& plan) {
  const LinearInfo& info = op.info();
  JsonOut blocking = JsonOut::array(), refused = JsonOut::array();
  for (const PlanText::Rows& r : plan.rows) {
    blocking.push_back(JsonOut::object(
        {{"m", range_text(r)}, {"blocking", r.blocking}, {"kernels", plan.kernels_for(r.from)}}));
  }
  for (const PlanText::Candidate& c : plan.candidates) {
    if (!c.refused.empty()) {
      refused.push_back(JsonOut::object({{"family", c.family}, {"why", c.refused}}));
    }
  }
  return JsonOut::object({{"module", op.name()},
                          {"format", info.stored},
                          {"shape", std::vector<int64_t>{info.gated ? 2 * info.n : info.n, info.k}},
                          {"file_bytes", info.file_bytes},
                          {"packed_bytes", op.weight_bytes()},
                          {"layout", op.layout()},
                          {"op", op.describe()},
                          {"residual", info.residual},
                          {"fused", info.joined},
                          {"decided", info.decided},
                          {"family", plan.family()},
                          {"kernels", plan.kernels},
                          {"no_kernel", info.refused.empty() ? JsonOut() : JsonOut(info.refused)},
                          {"blocking", std::move(blocking)},
                          {"refused", std::move(refused)}});
}

void print_op(const LinearOp& op, const PlanText& plan) {
  const LinearInfo& info = op.info();
  fmt::print("{}\n", op.name());
  fmt::print("  format   {}, [{}, {}], {} bytes in the files; in memory {} bytes, {}\n",
             info.stored, info.gated ? 2 * info.n : info.n, info.k, info.file_bytes,
             op.weight_bytes(), op.layout());
  fmt::print("  op       {}{}\n", op.describe(), info.residual ? " + residual" : "");
  fmt::print("  decided  {}\n", info.decided);
  fmt::print("  fused    {}\n", info.joined);
  if (!info.refused.empty()) fmt::print("  kernel   none: {}\n", info.refused);
  for (const PlanText::Rows& r : plan.rows) {
    fmt::print("  kernel   M {}: {}\n           {}\n", range_text(r), plan.kernels_for(r.from),
               r.blocking);
  }
  for (const PlanText::Candidate& c : plan.candidates) {
    if (!c.refused.empty()) fmt::print("  refused  {}: {}\n", c.family, c.refused);
  }
}

JsonOut report_ops(const Qwen3_5& model) {
  JsonOut list = JsonOut::array();
  for (const LinearOp* op : model.ops()) {
    const PlanText plan = parse_plan_text(op->explain());
    print_op(*op, plan);
    list.push_back(to_json(*op, plan));
  }
  return list;
}

/// Everything that is not the matrix of a linear op; these never depend on AVX-512.
JsonOut report_parameters(const Qwen3_5& model) {
  const bool jit = model.mode().backend == Backend::kJit;
  const std::string kernel = layer_kernel_name(jit ? LayerImpl::kSimd : LayerImpl::kScalar);
  JsonOut list = JsonOut::array();
  fmt::print("\nother tensors (kernel of their layers: {}; fused: {})\n", kernel, kLayersStayApart);
  for (const Parameter& p : model.parameters()) {
    fmt::print("  {:<56} {:<5} {:<16} {:>10} bytes  {}\n", p.name, p.stored, shape_text(p.shape),
               p.file_bytes, p.op);
    list.push_back(JsonOut::object({{"module", p.name},
                                    {"format", p.stored},
                                    {"shape", p.shape},
                                    {"file_bytes", p.file_bytes},
                                    {"op", p.op},
                                    {"kernel", kernel},
                                    {"fused", kLayersStayApart}}));
  }
  return list;
}

struct Amount {
  int64_t count = 0;
  uint64_t bytes = 0;

  void add(uint64_t more) {
    ++count;
    bytes += more;
  }
};

JsonOut print_amounts(const char* title, const std::map<std::string, Amount>& amounts) {
  JsonOut json = JsonOut::object();
  for (const auto& [name, amount] : amounts) {
    fmt::print("  {:<8} {:>14} bytes in {:>5}  {}\n", title, amount.bytes, amount.count, name);
    json.set(name, JsonOut::object({{"count", amount.count}, {"bytes", amount.bytes}}));
  }
  return json;
}

JsonOut report_totals(const Session& session, const Qwen3_5& model) {
  std::map<std::string, Amount> formats, skipped, kernels;
  uint64_t file = 0, packed = 0;
  for (const LinearOp* op : model.ops()) {
    const LinearInfo& info = op->info();
    // A tied head has no bytes of its own in the files.
    if (info.file_bytes > 0) formats[info.stored].add(info.file_bytes);
    file += info.file_bytes;
    packed += op->weight_bytes();
    const std::string family = parse_plan_text(op->explain()).family();
    kernels[!info.refused.empty() ? "no kernel"
            : family.empty()      ? op->layout()
                                  : family]
        .add(op->weight_bytes());
  }
  for (const Parameter& p : model.parameters()) {
    formats[p.stored].add(p.file_bytes);
    file += p.file_bytes;
  }
  for (const Checkpoint::Ignored& t : session.ignored()) skipped[t.reason].add(t.bytes);
  fmt::print("\ntotals\n");
  JsonOut json = JsonOut::object({{"file_bytes", file}, {"packed_bytes", packed}});
  json.set("formats", print_amounts("format", formats));
  json.set("packed", print_amounts("packed", kernels));
  json.set("skipped", print_amounts("skipped", skipped));
  fmt::print("  {:<8} {:>14} bytes used of the files, {} bytes packed\n", "all", file, packed);
  return json;
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  std::optional<OutputFile> file;
  if (!options.common.json.empty()) file.emplace("--json", options.common.json);
  Session session(options.common, Session::Purpose::kInspect);
  const Qwen3_5& model = session.model();
  fmt::print("{}: {}, {}\n\n", session.dir().path(), session.config().architecture,
             session.describe());
  fmt::print("key/value cache {}\n\n", model.kv_cache().reason);
  JsonOut json = JsonOut::object({{"command", "inspect"},
                                  {"model", session.dir().path()},
                                  {"architecture", session.config().architecture},
                                  {"run", session.describe()},
                                  {"kv_cache", model.kv_cache().reason}});
  json.set("linear", report_ops(model));
  json.set("parameters", report_parameters(model));
  json.set("totals", report_totals(session, model));
  if (file) file->write(json.text());
  return 0;
}

}  // namespace quern::smoke
