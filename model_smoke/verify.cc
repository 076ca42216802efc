#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "model_smoke/input_error.h"
#include "model_smoke/json_out.h"
#include "model_smoke/options.h"
#include "model_smoke/output_file.h"
#include "model_smoke/safetensors_writer.h"
#include "model_smoke/session.h"
#include "model_smoke/verify_run.h"

namespace quern::smoke {
namespace {

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

std::string verdict(const std::vector<std::string>& reasons) {
  return reasons.empty() ? "ok" : "FAIL: " + joined(reasons);
}

void print_row(const std::string& name, int64_t tokens, const LogitStats& golden,
               const LogitStats& stepwise, const std::string& greedy, const std::string& text) {
  fmt::print("{:>7} {:>6}  {:>9.3e} {:>8.4f}% {:>9.3e} {:>7.4f}  {:>16}  {:>9.3e} {:>8.4f}%  {}\n",
             name, tokens, golden.max_abs(), golden.relative_rms() * 100, golden.kl(),
             golden.argmax_agreement(), greedy, stepwise.max_abs(), stepwise.relative_rms() * 100,
             text);
}

std::string greedy_text(const PromptResult& prompt) {
  std::string text = fmt::format("{}/{}", prompt.greedy_equal, prompt.greedy.size());
  if (prompt.first_margin) text += fmt::format(" (at {:.3f})", *prompt.first_margin);
  return text;
}

/// Prints the table; true when everything holds.
bool report(const VerifyResult& result, const Tolerance& tolerance) {
  fmt::print("{:>7} {:>6}  {:>9} {:>9} {:>9} {:>7}  {:>16}  {:>9} {:>9}\n", "prompt", "tokens",
             "max abs", "rel RMS", "KL", "argmax", "greedy equal", "step max", "step RMS");
  bool holds = true;
  for (size_t i = 0; i < result.prompts.size(); ++i) {
    const PromptResult& prompt = result.prompts[i];
    const std::vector<std::string> reasons = violations(prompt, tolerance);
    holds = holds && reasons.empty();
    print_row(std::to_string(i), prompt.tokens, prompt.golden, prompt.stepwise, greedy_text(prompt),
              verdict(reasons));
  }
  const std::vector<std::string> golden = violations(result.golden, tolerance);
  std::vector<std::string> stepwise = violations(result.stepwise, tolerance);
  print_row("all", result.golden.rows(), result.golden, result.stepwise, "", verdict(golden));
  fmt::print("prefill against token by token: {}\n", verdict(stepwise));
  holds = holds && golden.empty() && stepwise.empty();
  fmt::print("verdict: {}\n", holds ? "PASS" : "FAIL");
  return holds;
}

JsonOut to_json(const LogitStats& s) {
  return JsonOut::object({{"tokens", s.rows()},
                          {"max_abs", s.max_abs()},
                          {"rel_rms", s.relative_rms()},
                          {"kl", s.kl()},
                          {"argmax_agree", s.argmax_agreement()}});
}

JsonOut to_json(const Session& session, const Goldens& goldens, const Tolerance& tolerance,
                const VerifyResult& result, bool holds) {
  JsonOut prompts = JsonOut::array();
  for (const PromptResult& prompt : result.prompts) {
    prompts.push_back(JsonOut::object({{"logits", to_json(prompt.golden)},
                                       {"stepwise", to_json(prompt.stepwise)},
                                       {"greedy", prompt.greedy},
                                       {"greedy_equal", prompt.greedy_equal}}));
  }
  return JsonOut::object({{"command", "verify"},
                          {"model", session.dir().path()},
                          {"goldens", goldens.source()},
                          {"run", session.describe()},
                          {"tolerance", tolerance.row},
                          {"pass", holds},
                          {"all", to_json(result.golden)},
                          {"stepwise", to_json(result.stepwise)},
                          {"prompts", std::move(prompts)}});
}

void dump_logits(const OutputFile& file, const VerifyResult& result) {
  std::vector<NamedMatrix> tensors;
  for (size_t i = 0; i < result.prompts.size(); ++i) {
    const Tensor& logits = result.prompts[i].logits;
    tensors.push_back(
        {fmt::format("prompt{}.logits", i), logits.row<float>(0), logits.rows(), logits.cols()});
  }
  file.write([&tensors](std::ostream& out) { write_safetensors(out, tensors); });
}

}  // namespace

int run_verify(const VerifyOptions& options) {
  std::optional<OutputFile> json, dump;
  if (!options.common.json.empty()) json.emplace("--json", options.common.json);
  if (!options.dump_logits.empty()) dump.emplace("--dump-logits", options.dump_logits);
  if (json && dump && json->path() == dump->path()) {
    throw InputError("--dump-logits", "", "another file than --json", dump->path());
  }
  Session session(options.common);
  const Goldens goldens =
      Goldens::load(session.dir(), options.goldens, session.config().vocab_size);
  const Tolerance tolerance = choose_tolerance(goldens, session.model().mode());
  fmt::print("{}: {}\n", goldens.name(), session.describe());
  fmt::print("{}\n", tolerance.row);
  const VerifyResult result = run_goldens(session.model(), goldens, tolerance);
  const bool holds = report(result, tolerance);
  if (dump) dump_logits(*dump, result);
  if (json) json->write(to_json(session, goldens, tolerance, result, holds).text());
  return holds ? 0 : 1;
}

}  // namespace quern::smoke
