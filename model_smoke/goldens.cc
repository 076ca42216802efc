#include "model_smoke/goldens.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model_smoke/checkpoint.h"
#include "model_smoke/file_map.h"
#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

const TensorView& tensor_at(const SafetensorsFile& file, const std::string& name) {
  const TensorView* tensor = file.find(name);
  if (tensor == nullptr) throw InputError(file.file(), name, "a tensor of that name", "none");
  return *tensor;
}

std::vector<int32_t> ids_at(const SafetensorsFile& file, const std::string& name, int64_t limit) {
  const TensorView& tensor = tensor_at(file, name);
  if (tensor.dtype != FileDType::kI64 || tensor.shape.size() != 1) {
    throw InputError(file.file(), name, "I64 [n]", describe(tensor));
  }
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    int64_t id = 0;
    std::memcpy(&id, tensor.data + i * 8, sizeof(id));
    if (id < 0 || id >= limit) {
      throw InputError(file.file(), name, fmt::format("ids in [0, {})", limit), std::to_string(id));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<float> numbers_at(const SafetensorsFile& file, const std::string& name,
                              const std::vector<int64_t>& shape) {
  const TensorView& tensor = tensor_at(file, name);
  if (tensor.shape != shape) {
    throw InputError(file.file(), name, "shape " + shape_text(shape), describe(tensor));
  }
  return to_f32(tensor);
}

GoldenPrompt load_prompt(const SafetensorsFile& file, const std::string& at, int64_t vocab) {
  GoldenPrompt prompt;
  prompt.ids = ids_at(file, at + "input_ids", vocab);
  const int64_t tokens = static_cast<int64_t>(prompt.ids.size());
  if (tokens == 0) throw InputError(file.file(), at + "input_ids", "at least one id", "none");
  prompt.logits = numbers_at(file, at + "logits_f32", {tokens, vocab});
  if (file.find(at + "logits_actq_f32") != nullptr) {
    prompt.logits_actq = numbers_at(file, at + "logits_actq_f32", {tokens, vocab});
  }
  if (file.find(at + "logits_kvq_f32") != nullptr) {
    prompt.logits_kvq = numbers_at(file, at + "logits_kvq_f32", {tokens, vocab});
    prompt.greedy_kvq = ids_at(file, at + "greedy_kvq_f32", vocab);
  }
  prompt.greedy = ids_at(file, at + "greedy_f32", vocab);
  prompt.margin =
      numbers_at(file, at + "greedy_margin_f32", {static_cast<int64_t>(prompt.greedy.size())});
  if (!prompt.greedy_kvq.empty() && prompt.greedy_kvq.size() != prompt.greedy.size()) {
    throw InputError(file.file(), at + "greedy_kvq_f32", "as many tokens as greedy_f32",
                     std::to_string(prompt.greedy_kvq.size()));
  }
  return prompt;
}

}  // namespace

Goldens Goldens::load(const ModelDir& dir, const std::string& file, int64_t vocab_size) {
  constexpr uint64_t kMaxJson = 16u << 20;
  Goldens out;
  std::string json_name, json_text;
  std::optional<FileMap> map;
  if (file.empty()) {
    map = dir.open("goldens.safetensors");
    json_name = "goldens.json";
    json_text = dir.read_text(json_name, kMaxJson);
  } else {
    map = FileMap::open_user_file(file);
    const std::string suffix = ".safetensors";
    if (file.size() <= suffix.size() ||
        file.compare(file.size() - suffix.size(), suffix.size(), suffix) != 0) {
      throw InputError(file, "", "a file name that ends in .safetensors", "another ending");
    }
    json_name = file.substr(0, file.size() - suffix.size()) + ".json";
    json_text = std::string(FileMap::open_user_file(json_name).text());
  }
  const SafetensorsFile tensors(std::move(*map));
  const Json json = parse_json(json_text, json_name);
  const JsonNode root(json, json_name, "");
  root.require_object();
  out.source_ = tensors.file();
  out.name_ = root.at("name").as_string();
  out.family_ = root.at("family").as_string();
  out.kind_ = root.at("kind").as_string();
  out.format_ = root.string_or("format", "");
  if (const auto row = root.find("actq_vs_f32")) out.actq_rel_rms_ = row->at("rel_rms").as_number();
  for (int i = 0;; ++i) {
    const std::string at = fmt::format("prompt{}.", i);
    if (tensors.find(at + "input_ids") == nullptr) break;
    out.prompts_.push_back(load_prompt(tensors, at, vocab_size));
  }
  const size_t expected = root.at("prompts").size();
  if (out.prompts_.size() != expected) {
    throw InputError(tensors.file(), "promptI.input_ids",
                     fmt::format("{} prompts, as {} lists", expected, json_name),
                     std::to_string(out.prompts_.size()));
  }
  if (out.prompts_.empty()) throw InputError(tensors.file(), "prompt0.input_ids", "it", "nothing");
  return out;
}

namespace {

Tolerance exact_row(bool trained) {
  Tolerance t;
  t.max_abs = trained ? 1e-3 : 2e-3;
  t.greedy_margin = -1.0;  // every decision counts, however close
  t.row = fmt::format("f32 activations: max abs <= {:g}, all greedy tokens equal", *t.max_abs);
  return t;
}

Tolerance bf16_row(bool trained, bool odd) {
  Tolerance t;
  t.rel_rms = trained ? 0.01 : odd ? 0.09 : 0.04;
  t.kl = trained ? 5e-4 : odd ? 2e-2 : 5e-3;
  t.argmax = trained ? 0.97 : 0.92;
  t.greedy_margin = trained ? 0.1 : 0.5;
  t.row = fmt::format(
      "bf16 activations, dense{}: relative RMS <= {:g} %, KL <= {:g}, argmax >= {:g}, greedy equal "
      "while the margin is > {:g}",
      odd ? " (odd)" : "", *t.rel_rms * 100, *t.kl, *t.argmax, *t.greedy_margin);
  return t;
}

/// The goldens of int4 formats have nothing for quantized activations: these are actq_vs_f32 of the
/// W8A8 files of the same two models, and quantizing activations costs no more with int4 weights.
constexpr double kW8A8Trained = 0.007753, kW8A8Public = 0.055033;

Tolerance int4_row(bool trained) {
  Tolerance t;
  const double w8a8 = trained ? kW8A8Trained : kW8A8Public;
  t.rel_rms = 1.5 * w8a8;
  t.row = fmt::format(
      "int8 activations on int4 weights: relative RMS <= 1.5 x that of W8A8 = 1.5 x {:.4f} = "
      "{:.3f} %",
      w8a8, *t.rel_rms * 100);
  return t;
}

Tolerance int8_row(const Goldens& goldens, bool trained) {
  Tolerance t;
  if (goldens.format().starts_with("gptq") || goldens.format() == "awq") return int4_row(trained);
  if (trained) {
    t.against = Tolerance::Logits::kActq;
    t.rel_rms = 0.02;
    t.kl = 2e-3;
    t.row = "int8 activations, against logits_actq_f32: relative RMS <= 2 %, KL <= 0.002";
    return t;
  }
  if (!goldens.actq_rel_rms()) {
    throw InputError(goldens.source(), "actq_vs_f32", "a row to hold int8 activations against",
                     "none");
  }
  t.rel_rms = 1.5 * *goldens.actq_rel_rms();
  t.row =
      fmt::format("int8 activations: relative RMS <= 1.5 x actq_vs_f32 = 1.5 x {:.4f} = {:.3f} %",
                  *goldens.actq_rel_rms(), *t.rel_rms * 100);
  return t;
}

/// The row of the arithmetic, but for f32 activations on the public models: a value near a tie of
/// e4m3 may round the other way.
void hold_against_kvq(const Goldens& goldens, const ComputeMode& mode, Tolerance* t) {
  if (mode.act == ActMode::kInt8) {
    throw InputError(goldens.source(), "logits", "a row for int8 activations with an FP8 KV cache",
                     "none", "use --kv-cache bf16, or --act bf16");
  }
  t->against = Tolerance::Logits::kKvq;
  if (mode.act == ActMode::kF32 && goldens.family() == "public") {
    t->max_abs = 2e-2;
    t->row = "f32 activations: max abs <= 0.02, all greedy tokens equal";
  }
  t->row += "; FP8 KV cache, against logits_kvq_f32";
}

}  // namespace

const std::vector<float>& GoldenPrompt::expected(const Tolerance& tolerance) const {
  switch (tolerance.against) {
    case Tolerance::Logits::kActq:
      return logits_actq;
    case Tolerance::Logits::kKvq:
      return logits_kvq;
    case Tolerance::Logits::kF32:
      break;
  }
  return logits;
}

const std::vector<int32_t>& GoldenPrompt::expected_greedy(const Tolerance& tolerance) const {
  return tolerance.against == Tolerance::Logits::kKvq ? greedy_kvq : greedy;
}

Tolerance choose_tolerance(const Goldens& goldens, const ComputeMode& mode) {
  const bool trained = goldens.family() == "trained";
  if (!trained && goldens.family() != "public") {
    throw InputError(goldens.source(), "family", "trained or public", goldens.family());
  }
  if (goldens.kind() != "qwen" && goldens.kind() != "qwen_vl") {
    throw InputError(goldens.source(), "kind", "qwen or qwen_vl (dense)", goldens.kind());
  }
  Tolerance t;
  if (mode.act == ActMode::kF32) {
    t = exact_row(trained);
  } else if (mode.act == ActMode::kBF16) {
    t = bf16_row(trained, goldens.name().find("_odd") != std::string::npos);
  } else {
    t = int8_row(goldens, trained);
  }
  if (mode.fp8_kv) hold_against_kvq(goldens, mode, &t);
  t.row = goldens.family() + ", " + t.row;
  for (const GoldenPrompt& prompt : goldens.prompts()) {
    if (prompt.expected(t).empty()) {
      const bool kvq = t.against == Tolerance::Logits::kKvq;
      throw InputError(goldens.source(), kvq ? "promptI.logits_kvq_f32" : "promptI.logits_actq_f32",
                       "it for every prompt", "none");
    }
  }
  return t;
}

}  // namespace quern::smoke
