#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model_smoke/generation_config.h"
#include "model_smoke/json_file.h"
#include "model_smoke/json_out.h"
#include "model_smoke/options.h"
#include "model_smoke/output_file.h"
#include "model_smoke/prompt.h"
#include "model_smoke/sampler.h"
#include "model_smoke/session.h"
#include "model_smoke/tokenizer.h"

namespace quern::smoke {
namespace {

// Written by the handler of Ctrl-C, which can reach nothing but a global: the answer ends, the
// summary is still printed.
volatile std::sig_atomic_t g_interrupted = 0;

void on_interrupt(int) {
  g_interrupted = 1;
}

struct Generation {
  std::vector<int32_t> prompt, ids;
  std::string text;
  std::string stopped_by;
  double first_token_seconds = 0;  ///< prefill and the choice of the first token
  double decode_seconds = 0;       ///< all tokens after the first
};

/// A chat template is not applied by this build; say so rather than do it silently.
void mention_chat_template(const ModelDir& dir, const GenerateOptions& options) {
  if (options.raw || !options.prompt.text || !dir.exists("tokenizer_config.json")) return;
  const std::string text = dir.read_text("tokenizer_config.json", 16u << 20);
  const Json json = parse_json(text, "tokenizer_config.json");
  if (!JsonNode(json, "tokenizer_config.json", "").has("chat_template")) return;
  fmt::print(stderr,
             "note: the model has a chat template, which this version does not apply: the "
             "prompt goes in as it is (--raw says that this is meant)\n");
}

/// Prints as it goes: whole characters, flushed.
class Stream {
 public:
  explicit Stream(const std::optional<Tokenizer>& tokenizer) {
    if (tokenizer) decoder_.emplace(*tokenizer);
  }
  void push(int32_t id, std::string& text) {
    emit(decoder_ ? decoder_->push(id) : (first_ ? "" : ",") + std::to_string(id), text);
    first_ = false;
  }
  void finish(std::string& text) {
    if (decoder_) emit(decoder_->finish(), text);
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  void emit(const std::string& piece, std::string& text) {
    text += piece;
    fmt::print("{}", piece);
    std::fflush(stdout);
  }
  std::optional<StreamDecoder> decoder_;
  bool first_ = true;
};

constexpr char kNotFinite[] = "logits that are not finite";

Generation generate(Qwen3_5& model, const GenerateOptions& options, std::vector<int32_t> prompt,
                    const GenerationConfig& stops, const std::optional<Tokenizer>& tokenizer) {
  Generation out;
  out.prompt = std::move(prompt);
  Sampler sampler({options.temperature, options.top_k, options.top_p, options.seed});
  Stream stream(tokenizer);
  ModelCache cache = model.make_cache();
  Tensor logits;
  const double start = now_seconds();
  double first_token = start;
  out.stopped_by = "length";
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const int32_t last = i == 0 ? 0 : out.ids.back();
    const Span<const int32_t> input =
        i == 0 ? Span<const int32_t>(out.prompt.data(), out.prompt.size())
               : Span<const int32_t>(&last, 1);
    model.forward(input, cache, {.last_only = true}, logits);
    const float* const scores = logits.row<float>(0);
    if (!std::all_of(scores, scores + model.config().vocab_size,
                     [](float x) { return std::isfinite(x); })) {
      out.stopped_by = kNotFinite;  // a pick among them would look like a token
      break;
    }
    const int32_t id = sampler.pick(scores, model.config().vocab_size);
    if (i == 0) first_token = now_seconds();
    if (stops.is_eos(id)) {
      out.stopped_by = "eos";
      break;
    }
    out.ids.push_back(id);
    stream.push(id, out.text);
    if (g_interrupted != 0) {
      out.stopped_by = "interrupt";
      break;
    }
  }
  out.first_token_seconds = first_token - start;
  out.decode_seconds = now_seconds() - first_token;
  stream.finish(out.text);
  return out;
}

void print_summary(const Session& session, const Generation& g) {
  const double prompt = static_cast<double>(g.prompt.size());
  fmt::print(stderr, "\n{}\nload {:.3f} s, kernels and packing {:.3f} s\n", session.describe(),
             session.load_seconds(), session.pack_seconds());
  fmt::print(stderr, "prompt {} tokens, TTFT {:.4f} s, prefill {:.1f} tok/s\n", g.prompt.size(),
             g.first_token_seconds, prompt / g.first_token_seconds);
  fmt::print(stderr, "new tokens {} (stopped by {})", g.ids.size(), g.stopped_by);
  if (g.ids.size() > 1) {
    fmt::print(stderr, ", decode {:.1f} tok/s",
               static_cast<double>(g.ids.size() - 1) / g.decode_seconds);
  }
  fmt::print(stderr, "\nkernels used by the projections:\n{}", session.kernels_used());
}

JsonOut to_json(const Session& session, const Generation& g) {
  return JsonOut::object({{"command", "generate"},
                          {"model", session.dir().path()},
                          {"run", session.describe()},
                          {"prompt_ids", g.prompt},
                          {"ids", g.ids},
                          {"text", g.text},
                          {"stopped_by", g.stopped_by},
                          {"load_seconds", session.load_seconds()},
                          {"pack_seconds", session.pack_seconds()},
                          {"ttft_seconds", g.first_token_seconds},
                          {"decode_seconds", g.decode_seconds}});
}

}  // namespace

int run_generate(const GenerateOptions& options) {
  options.prompt.require_one("generate");
  std::optional<OutputFile> json;
  if (!options.common.json.empty()) json.emplace("--json", options.common.json);
  Session session(options.common);
  const std::optional<Tokenizer> tokenizer = load_tokenizer(session.dir(), options.prompt);
  const GenerationConfig stops = load_generation_config(session.dir(), session.config());
  mention_chat_template(session.dir(), options);
  std::vector<int32_t> prompt =
      prompt_ids(options.prompt, session.config(), tokenizer, options.max_new_tokens);
  const auto previous = std::signal(SIGINT, on_interrupt);
  const Generation g = generate(session.model(), options, std::move(prompt), stops, tokenizer);
  std::signal(SIGINT, previous);
  print_summary(session, g);
  if (json) json->write(to_json(session, g).text());
  return g.stopped_by == kNotFinite ? 1 : 0;
}

}  // namespace quern::smoke
