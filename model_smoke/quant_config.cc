#include "model_smoke/quant_config.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/fused_modules.h"
#include "model_smoke/input_error.h"

namespace quern::smoke {

void read_list(const JsonNode& list, ModuleList* to) {
  list.require_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode entry = list.element(i);
    to->add(entry.as_string(), entry.file(), entry.path());
  }
}

namespace {

/// What writers call the list of modules that are not quantized.
constexpr const char* kIgnoreKeys[] = {"ignore", "modules_to_not_convert", "ignored_layers",
                                       "exclude_modules"};

constexpr uint64_t kMaxConfigBytes = 16'000'000;
constexpr char kSupported[] =
    "w8a8_int8, fp8, modelopt, gptq, awq, or compressed-tensors with format int-quantized, "
    "pack-quantized, float-quantized or nvfp4-pack-quantized";

// The quantization_config. Older compressed-tensors writers and vision models put it elsewhere;
// where it is in several places it must say the same in all of them.
std::optional<JsonNode> find_quantization(const JsonNode& root) {
  std::optional<JsonNode> first;
  const auto add = [&first](const JsonNode& at, const char* key) {
    const auto found = at.find(key);
    if (!found) return;
    if (first && first->value() != found->value()) {
      found->fail("the same as " + first->path() + ", or nothing");
    }
    if (!first) first = found;
  };
  add(root, "quantization_config");
  add(root, "compression_config");
  if (const auto text = root.find("text_config")) {
    add(*text, "quantization_config");
    add(*text, "compression_config");
  }
  return first;
}

/// quantize_config.json must not say otherwise, nor be alone: HF's config.json is what is read.
void hold_against(const JsonNode& root, const Json& beside, const std::string& file) {
  const JsonNode other(beside, file, "");
  other.require_object();
  const auto quant = find_quantization(root);
  if (!quant) {
    other.fail("a quantization_config in " + root.file() + " that says the same");
  }
  for (const char* key :
       {"quant_method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "dynamic"}) {
    const auto here = quant->find(key), there = other.find(key);
    if (here && there && here->value() != there->value()) {
      there->fail("what " + quant->file() + " has in " + here->path() + ", " +
                  describe(here->value()));
    }
  }
}

}  // namespace

const char* to_string(QuantMethod method) noexcept {
  switch (method) {
    case QuantMethod::kNone:
      return "none";
    case QuantMethod::kW8A8Int8:
      return "w8a8_int8";
    case QuantMethod::kCompressedTensorsInt8:
      return "compressed-tensors int-quantized";
    case QuantMethod::kFp8:
      return "fp8";
    case QuantMethod::kCompressedTensorsFp8:
      return "compressed-tensors float-quantized";
    case QuantMethod::kModelOptFp8:
      return "modelopt FP8";
    case QuantMethod::kModelOptNvfp4:
      return "modelopt NVFP4";
    case QuantMethod::kModelOptMixed:
      return "modelopt MIXED_PRECISION";
    case QuantMethod::kCompressedTensorsNvfp4:
      return "compressed-tensors nvfp4-pack-quantized";
    case QuantMethod::kGptq:
      return "gptq";
    case QuantMethod::kAwq:
      return "awq";
    case QuantMethod::kCompressedTensorsInt4:
      return "compressed-tensors pack-quantized";
  }
  return "?";
}

QuantConfig QuantConfig::load(const ModelDir& dir) {
  const std::string file = dir.label("config.json");
  Json config = parse_json(dir.read_text("config.json", kMaxConfigBytes), file);
  // GPTQ writers put the same beside it; a reader must not have to know which one counts.
  if (dir.exists("quantize_config.json")) {
    const std::string beside = dir.label("quantize_config.json");
    hold_against(JsonNode(config, file, ""),
                 parse_json(dir.read_text("quantize_config.json", kMaxConfigBytes), beside),
                 beside);
  }
  QuantConfig q = parse(config, file);
  constexpr char kNested[] = "hf_quant_config.json";
  if (dir.exists(kNested)) {
    const Json nested = parse_json(dir.read_text(kNested, kMaxConfigBytes), dir.label(kNested));
    QuantConfig other = parse_nested(nested, dir.label(kNested));
    if (!q.present_) {
      q = std::move(other);
    } else {
      q.hold_against_nested(other);
      // What one file alone says counts.
      if (q.kv_ == KvAlgorithm::kNone) q.kv_ = other.kv_;
      if (q.method_ == QuantMethod::kModelOptMixed && q.layers_.empty()) {
        q.layers_ = std::move(other.layers_);
        const auto groups = find_quantization(JsonNode(config, file, ""))->find("config_groups");
        if (groups) q.read_modelopt_groups(*groups);  // now they can be held against layers
      }
    }
  }
  if (q.method_ == QuantMethod::kModelOptMixed && q.layers_.empty()) {
    throw InputError(q.file_, q.at_ + ".quantized_layers",
                     "the algorithm of each quantized module, because of MIXED_PRECISION",
                     "none, and none in hf_quant_config.json");
  }
  return q;
}

QuantConfig QuantConfig::parse(const Json& config, const std::string& file) {
  QuantConfig q;
  q.file_ = file;
  const JsonNode root(config, file, "");
  const auto quant = find_quantization(root);
  if (!quant) return q;
  quant->require_object();
  q.at_ = quant->path();
  q.present_ = true;
  const JsonNode method = quant->at("quant_method", kSupported);
  q.read_kv_cache(*quant);
  if (method.as_string() == "w8a8_int8") {
    q.method_ = QuantMethod::kW8A8Int8;
    const std::string scheme = quant->string_or("activation_scheme", "dynamic");
    if (scheme != "dynamic") quant->at("activation_scheme").fail("dynamic");
    q.targets_.add("Linear", file, quant->path());
  } else if (method.as_string() == "compressed-tensors") {
    q.read_compressed_tensors(*quant);
  } else if (method.as_string() == "fp8") {
    q.read_fp8(*quant);
  } else if (method.as_string() == "modelopt") {
    q.read_modelopt(*quant, false);
  } else if (method.as_string() == "gptq") {
    q.read_gptq(*quant);
  } else if (method.as_string() == "awq") {
    q.read_awq(*quant);
    return q;  // its modules_to_not_convert is another kind of list
  } else {
    method.fail(std::string("a supported method: ") + kSupported);
  }
  for (const char* key : kIgnoreKeys) {
    if (const auto list = quant->find(key)) {
      read_list(*list, &q.ignore_);
      q.ignore_key_ = key;
    }
  }
  return q;
}

std::vector<std::string> QuantConfig::unmatched_entries(const Checkpoint& checkpoint) const {
  // lm_head is absent where embeddings are tied, and still a name writers list.
  std::set<std::string, std::less<>> modules = {"lm_head"};
  for (const std::string& name : checkpoint.names()) {
    const std::string module = without_language_model(name.substr(0, name.rfind('.')));
    for (const std::string& shard : shards_of(module)) modules.insert(shard);
    if (const std::string joined = joined_name_of(module); !joined.empty()) modules.insert(joined);
    modules.insert(module);
  }
  std::set<std::string, std::less<>> parts;
  for (const std::string& module : modules) {
    for (const std::string_view part : parts_of(module)) parts.emplace(part);
  }
  const auto has_or_is_above = [&](const std::string& name) {
    const auto below = modules.lower_bound(name + ".");
    return modules.contains(name) || (below != modules.end() && below->starts_with(name + "."));
  };
  const auto is_known = [&](const ModulePattern& p) {
    if (!p.is_name()) {
      return std::any_of(modules.begin(), modules.end(),
                         [&](const std::string& m) { return p.matches(m); });
    }
    if (ignore_.matches_parts() && parts.contains(p.name())) return true;
    return has_or_is_above(p.name());
  };
  std::vector<std::string> warnings;
  const auto report = [&](const char* key, const std::string& text) {
    warnings.push_back(file_ + ": " + at_ + "." + key + ": \"" + printable(text) +
                       "\" matches no module of the checkpoint");
  };
  for (const ModulePattern& p : ignore_.entries()) {
    if (!is_known(p)) report(ignore_key_, p.text());
  }
  for (const Rule& rule : dynamic_) {
    if (!is_known(rule.pattern)) report("dynamic", rule.text);
  }
  for (const auto& [name, scheme] : layers_) {
    if (!has_or_is_above(name)) report("quantized_layers", name);
  }
  for (const std::string& part : substrings_) {
    const bool known = std::any_of(modules.begin(), modules.end(),
                                   [&](const std::string& m) { return has_part(m, part); });
    if (!known) report("modules_to_not_convert", part);
  }
  return warnings;
}

}  // namespace quern::smoke
