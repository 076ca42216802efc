// ModelOpt: what config.json and hf_quant_config.json say of e4m3 and NVFP4 weights, for all
// modules or for each.
#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model_smoke/fused_modules.h"
#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {
namespace {

using Scales = Fp8Scheme::Scales;

constexpr char kAlgorithms[] =
    "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4, NVFP4_AWQ (read as NVFP4) or "
    "MIXED_PRECISION; int8 W8A8 comes as w8a8_int8 or compressed-tensors";

// Activations stay bf16 here, so algorithms that differ in them alone are one. Exporters have
// written the block-wise one in lower case as well.
const std::vector<ModelOptScheme>& algorithms() {
  using enum QuantMethod;
  const Fp8Scheme blocks{Scales::kBlock, 128, 128};
  static const std::vector<ModelOptScheme> list = {
      {"FP8", kModelOptFp8, {}, false},
      {"FP8_PER_CHANNEL_PER_TOKEN", kModelOptFp8, {.scales = Scales::kChannel}, false},
      {"FP8_PB_WO", kModelOptFp8, blocks, false},
      {"fp8_pb_wo", kModelOptFp8, blocks, false},
      {"NVFP4", kModelOptNvfp4, {}, false},
      {"W4A16_NVFP4", kModelOptNvfp4, {}, false},
      {"NVFP4_AWQ", kModelOptNvfp4, {}, true},
  };
  return list;
}

void require_group_of_16(const JsonNode& at) {
  if (at.int_at("group_size", 1, INT32_MAX) != kNvfp4Block) at.at("group_size").fail("16");
}

/// An object with a quant_algo: of the file, or of one entry of quantized_layers. `outer`: where
/// its group_size may be as well.
ModelOptScheme read_scheme(const JsonNode& at, const JsonNode& outer, bool nested) {
  const JsonNode algorithm = at.at("quant_algo", kAlgorithms);
  const auto found =
      std::find_if(algorithms().begin(), algorithms().end(),
                   [&](const ModelOptScheme& s) { return s.algorithm == algorithm.as_string(); });
  if (found == algorithms().end()) {
    algorithm.fail(std::string("a supported algorithm: ") + kAlgorithms);
  }
  ModelOptScheme scheme = *found;
  const JsonNode& sized = at.has("group_size") ? at : outer;
  if (is_fp4(scheme.method)) {
    if (sized.has("group_size")) {
      require_group_of_16(sized);
    } else if (nested) {
      at.fail("a group_size beside " + scheme.algorithm + ": this form has no default");
    }
  } else if (scheme.fp8.scales == Scales::kBlock && sized.has("group_size")) {
    scheme.fp8.block_n = scheme.fp8.block_k = sized.int_at("group_size", 1, INT32_MAX);
  }
  if (at.bool_or("has_zero_point", false)) at.at("has_zero_point").fail("false");
  scheme.pre_quant_scale = at.bool_or("pre_quant_scale", scheme.pre_quant_scale);
  return scheme;
}

std::string text_of(const ModelOptScheme& s) {
  std::string text = s.algorithm;
  if (s.fp8.scales == Scales::kBlock) {
    text += fmt::format(" in blocks of {} x {}", s.fp8.block_n, s.fp8.block_k);
  }
  return text + (s.pre_quant_scale ? " with pre_quant_scale" : "");
}

}  // namespace

void QuantConfig::read_modelopt(const JsonNode& quant, bool nested) {
  ignore_.match_parts();
  const JsonNode algorithm = quant.at("quant_algo", kAlgorithms);
  // Weights as they are, perhaps beside an FP8 cache.
  if (algorithm.value().is_null()) {
    for (const char* key : {"quantized_layers", "config_groups"}) {
      if (const auto more = quant.find(key)) more->fail("nothing beside a quant_algo of null");
    }
    return;
  }
  if (algorithm.as_string() == "MIXED_PRECISION") {
    method_ = QuantMethod::kModelOptMixed;
    if (const auto layers = quant.find("quantized_layers")) {
      read_quantized_layers(*layers, quant, nested);
    }
  } else {
    modelopt_ = read_scheme(quant, quant, nested);
    method_ = modelopt_.method;
    if (const auto layers = quant.find("quantized_layers")) {
      layers->fail("nothing, or MIXED_PRECISION in " + algorithm.path());
    }
  }
  if (const auto groups = quant.find("config_groups")) read_modelopt_groups(*groups);
  if (targets_.entries().empty()) targets_.add("Linear", quant.file(), quant.path());
}

void QuantConfig::read_quantized_layers(const JsonNode& layers, const JsonNode& quant,
                                        bool nested) {
  layers.require_object();
  for (const auto& [name, value] : layers.value().items()) {
    const JsonNode at(value, layers.file(), layers.path() + "." + printable(name));
    if (!ModulePattern(name, at.file(), at.path()).is_name()) at.fail("the name of a module");
    at.require_object();
    ModelOptScheme scheme = read_scheme(at, quant, nested);
    const auto [it, is_new] = layers_.try_emplace(without_language_model(name), scheme);
    if (!is_new && it->second != scheme) {
      at.fail("one scheme for " + printable(it->first),
              "it is there by another spelling as " + text_of(it->second));
    }
  }
}

void QuantConfig::hold_group_against_layers(const JsonNode& group) const {
  const auto list = group.find("targets");
  const auto weights = group.find("weights");
  if (!list || !weights || layers_.empty()) return;
  weights->require_object();
  list->require_array();
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonNode name = list->element(i);
    const auto layer = layers_.find(without_language_model(name.as_string()));
    if (layer == layers_.end()) name.fail("a name that quantized_layers has as well");
    const bool fp4 = is_fp4(layer->second.method);
    const int64_t bits = fp4 ? 4 : 8;
    const std::string because = ", because quantized_layers has " + text_of(layer->second) +
                                " for " + printable(layer->first);
    if (weights->int_or("num_bits", bits, 1, 64) != bits) {
      weights->at("num_bits").fail(std::to_string(bits) + because);
    }
    if (weights->string_or("type", "float") != "float") {
      weights->at("type").fail("float" + because);
    }
    if (fp4 && weights->has("group_size")) require_group_of_16(*weights);
  }
}

void QuantConfig::read_modelopt_groups(const JsonNode& groups) {
  groups.require_object();
  for (const auto& [key, value] : groups.value().items()) {
    const JsonNode group(value, groups.file(), groups.path() + "." + key);
    group.require_object();
    if (method_ == QuantMethod::kModelOptMixed) {
      hold_group_against_layers(group);
      continue;
    }
    if (const auto list = group.find("targets")) read_list(*list, &targets_);
    for (const char* side : {"weights", "input_activations"}) {
      const auto scheme = group.find(side);
      if (!scheme) continue;
      const int64_t bits = is_fp4(method_) ? 4 : 8;
      scheme->require_object();
      if (scheme->int_or("num_bits", bits, 1, 64) != bits) {
        scheme->at("num_bits").fail(std::to_string(bits));
      }
      if (scheme->string_or("type", "float") != "float") scheme->at("type").fail("float");
      if (is_fp4(method_) && scheme->has("group_size")) require_group_of_16(*scheme);
    }
  }
}

// Engines look a module up by its own name, by that of its join and by that of a module above; the
// entries that answer must be of one mind, for the members of an object have no order.
const ModelOptScheme* QuantConfig::modelopt_scheme_of(std::string_view module,
                                                      std::string* entry) const {
  if (method_ != QuantMethod::kModelOptMixed) return is_modelopt(method_) ? &modelopt_ : nullptr;
  const std::pair<const std::string, ModelOptScheme>* found = nullptr;
  const auto look = [&](std::string_view name) {
    const auto it = layers_.find(name);
    if (it == layers_.end()) return false;
    if (found != nullptr && found->second != it->second) {
      throw InputError(file_, at_ + ".quantized_layers", "one scheme for " + std::string(module),
                       text_of(found->second) + " for " + printable(found->first) + " and " +
                           text_of(it->second) + " for " + printable(it->first));
    }
    if (found == nullptr) found = &*it;
    return true;
  };
  const std::string plain = without_language_model(module);
  std::string name = plain;
  while (true) {
    look(name);
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) break;
    name.resize(dot);
  }
  if (const std::string joined = joined_name_of(plain); !joined.empty()) look(joined);
  const std::vector<std::string> shards = shards_of(plain);
  const auto listed = std::count_if(shards.begin(), shards.end(), look);
  if (listed > 0 && listed < static_cast<std::ptrdiff_t>(shards.size())) {
    throw InputError(file_, at_ + ".quantized_layers",
                     "all or none of what is joined as " + std::string(module),
                     std::to_string(listed) + " of " + std::to_string(shards.size()));
  }
  if (found == nullptr) return nullptr;
  if (entry != nullptr) *entry = found->first;
  return &found->second;
}

QuantMethod QuantConfig::method_of(std::string_view module) const {
  if (method_ != QuantMethod::kModelOptMixed) return method_;
  const ModelOptScheme* scheme = modelopt_scheme_of(module);
  return scheme != nullptr ? scheme->method : QuantMethod::kNone;
}

bool QuantConfig::pre_quant_scale_of(std::string_view module) const {
  const ModelOptScheme* scheme = modelopt_scheme_of(module);
  return scheme != nullptr && scheme->pre_quant_scale;
}

QuantConfig QuantConfig::parse_nested(const Json& json, const std::string& file) {
  QuantConfig q;
  q.file_ = file;
  q.at_ = "quantization";
  q.present_ = true;
  q.ignore_key_ = "exclude_modules";
  const JsonNode root(json, file, "");
  root.require_object();
  const JsonNode quant = root.at("quantization", "an object with quant_algo");
  quant.require_object();
  q.read_modelopt(quant, true);
  q.read_kv_cache(quant);
  if (const auto list = quant.find("exclude_modules")) read_list(*list, &q.ignore_);
  return q;
}

void QuantConfig::hold_layers_against(const QuantConfig& nested) const {
  if (layers_.empty() || nested.layers_.empty()) return;
  for (const auto* from : {this, &nested}) {
    const QuantConfig& other = from == this ? nested : *this;
    for (const auto& [name, scheme] : from->layers_) {
      const auto it = other.layers_.find(name);
      const bool missing = it == other.layers_.end();
      if (!missing && it->second == scheme) continue;
      throw InputError(other.file_, other.at_ + ".quantized_layers." + printable(name),
                       "what " + from->file_ + " has, " + text_of(scheme),
                       missing ? "nothing" : text_of(it->second));
    }
  }
}

void QuantConfig::hold_against_nested(const QuantConfig& nested) const {
  const bool same = method_ == nested.method_ && modelopt_ == nested.modelopt_;
  if (!same) {
    const auto text = [](const QuantConfig& q) {
      return to_string(q.method_) +
             (q.modelopt_.algorithm.empty() ? "" : ", " + text_of(q.modelopt_));
    };
    throw InputError(nested.file_, "quantization.quant_algo",
                     "what " + file_ + " has, " + text(*this), text(nested));
  }
  hold_layers_against(nested);
  const auto names = [](const ModuleList& list) {
    std::set<std::string> out;
    for (const ModulePattern& p : list.entries()) out.insert(p.text());
    return out;
  };
  const std::set<std::string> here = names(ignore_), there = names(nested.ignore_);
  const auto first_missing = [](const std::set<std::string>& from,
                                const std::set<std::string>& in) {
    const auto it = std::find_if(from.begin(), from.end(),
                                 [&](const std::string& s) { return !in.contains(s); });
    return it == from.end() ? std::string() : printable(*it);
  };
  if (here != there) {
    const std::string missing = first_missing(here, there), extra = first_missing(there, here);
    throw InputError(nested.file_, "quantization.exclude_modules",
                     "the list that " + file_ + " has in quantization_config." + ignore_key_,
                     missing.empty() ? "\"" + extra + "\" more" : "no \"" + missing + "\"");
  }
  // Silence of either is no contradiction.
  const bool both_speak = kv_ != KvAlgorithm::kNone && nested.kv_ != KvAlgorithm::kNone;
  if (both_speak && kv_ != nested.kv_) {
    throw InputError(nested.file_, "quantization.kv_cache_quant_algo",
                     "what " + file_ + " has in " + at_ + "." + kv_text_,
                     nested.at_ + "." + nested.kv_text_);
  }
}

}  // namespace quern::smoke
