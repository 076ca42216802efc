#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "model_smoke/compare_run.h"
#include "model_smoke/input_error.h"
#include "model_smoke/json_out.h"
#include "model_smoke/options.h"
#include "model_smoke/output_file.h"
#include "model_smoke/prompt.h"
#include "model_smoke/session.h"

namespace quern::smoke {
namespace {

/// "model.layers.3.mlp.gate_proj+model.layers.3.mlp.up_proj" without what the column of the layer
/// says and what the module before has said: "mlp.gate_proj+up_proj".
std::string short_module(const OpRecord& r) {
  if (r.layer < 0) return r.module;
  const std::string prefix = fmt::format("layers.{}.", r.layer);
  std::string out, parent;
  for (size_t begin = 0; begin < r.module.size();) {
    const size_t plus = std::min(r.module.find('+', begin), r.module.size());
    std::string part = r.module.substr(begin, plus - begin);
    const size_t at = part.find(prefix);
    if (at != std::string::npos) part.erase(0, at + prefix.size());
    if (!parent.empty() && part.starts_with(parent)) part.erase(0, parent.size());
    const size_t dot = part.rfind('.');
    if (dot != std::string::npos) parent = part.substr(0, dot + 1);
    out += (out.empty() ? "" : "+") + part;
    begin = plus + 1;
  }
  return out;
}

void print_line(const OpRecord& r) {
  const std::string layer = r.layer < 0 ? "-" : std::to_string(r.layer);
  const std::string output = r.output == "output" ? "" : " " + r.output;
  fmt::print("{:>6} {:>5}  {:<34} {:<20} {}\n", r.first_token, layer, short_module(r),
             r.op + output, verdict_text(r.comparison));
}

void print_totals(const CompareResult& result) {
  fmt::print("{:<28} {:>7} {:>12}  verdict\n", "op", "calls", "elements");
  for (const auto& [op, totals] : result.by_op) {
    fmt::print("{:<28} {:>7} {:>12}  {}\n", op, totals.calls, totals.comparison.elements,
               verdict_text(totals.comparison));
  }
}

JsonOut number(double x) {
  // JSON has no infinities and no NaN, and those are just what a divergence may hold.
  if (std::isfinite(x)) return x;
  return fmt::format("{}", x);
}

JsonOut to_json(const OpRecord& r) {
  const Comparison& c = r.comparison;
  JsonOut json = JsonOut::object({{"token", r.first_token},
                                  {"layer", r.layer},
                                  {"module", r.module},
                                  {"op", r.op},
                                  {"output", r.output},
                                  {"kernel", r.kernel},
                                  {"verdict", to_string(c.verdict())},
                                  {"elements", c.elements},
                                  {"not_equal", c.unequal},
                                  {"outside", c.outside}});
  if (c.unequal > 0) {
    json.set("worst", JsonOut::object({{"row", c.worst.row},
                                       {"col", c.worst.col},
                                       {"got", number(c.worst.got)},
                                       {"expected", number(c.worst.expected)},
                                       {"distance", number(c.worst.distance)},
                                       {"allowed", number(c.worst.allowed)}}));
  }
  return json;
}

}  // namespace

int run_compare(const CompareOptions& options) {
  options.prompt.require_one("compare");
  if (options.common.parsed_backend() != Backend::kJit) {
    throw InputError("--backend", "",
                     "jit: compare holds the generated kernels against the reference",
                     options.common.backend);
  }
  std::optional<OutputFile> file;
  if (!options.common.json.empty()) file.emplace("--json", options.common.json);
  Session session(options.common, Session::Purpose::kCompare);
  const std::optional<Tokenizer> tokenizer = load_tokenizer(session.dir(), options.prompt);
  const std::vector<int32_t> ids =
      prompt_ids(options.prompt, session.config(), tokenizer, options.decode_steps);
  fmt::print("{}: {}, {} prompt tokens, {} decode steps\n", session.dir().path(),
             session.describe(), ids.size(), options.decode_steps);
  JsonOut records = JsonOut::array();
  if (!options.summary) {
    fmt::print("{:>6} {:>5}  {:<34} {:<20} verdict\n", "token", "layer", "module", "op");
  }
  const CompareResult result =
      compare_ops(session.model(), session.model().direct_ops(), session.runtime().context().pool(),
                  ids, options.decode_steps, [&](const OpRecord& r) {
                    if (!options.summary || r.comparison.verdict() == Verdict::kDiffers)
                      print_line(r);
                    if (file) records.push_back(to_json(r));
                  });
  print_totals(result);
  if (result.first_divergence) fmt::print("{}", divergence_text(*result.first_divergence));
  fmt::print("verdict: {}\n", result.holds() ? "PASS" : "FAIL");
  if (file) {
    JsonOut json = JsonOut::object({{"command", "compare"},
                                    {"model", session.dir().path()},
                                    {"run", session.describe()},
                                    {"prompt_ids", ids},
                                    {"decoded_ids", result.generated},
                                    {"pass", result.holds()},
                                    {"ops", std::move(records)}});
    if (result.first_divergence) json.set("first_divergence", to_json(*result.first_divergence));
    file->write(json.text());
  }
  return result.holds() ? 0 : 1;
}

}  // namespace quern::smoke
