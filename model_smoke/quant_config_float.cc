// fp8 and ModelOpt: what their configs say of e4m3 and NVFP4 weights.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {
namespace {

constexpr int64_t kNvfp4Group = 16;
constexpr char kAlgorithms[] =
    "FP8, NVFP4 or NVFP4_AWQ (read as NVFP4); int8 W8A8 comes as w8a8_int8 or compressed-tensors";

void require_group_of_16(const JsonNode& at) {
  if (at.int_at("group_size", 1, INT32_MAX) != kNvfp4Group) at.at("group_size").fail("16");
}

}  // namespace

void QuantConfig::read_fp8(const JsonNode& quant) {
  method_ = QuantMethod::kFp8;
  if (quant.string_or("fmt", "e4m3") != "e4m3") quant.at("fmt").fail("e4m3");
  const std::string activations = quant.string_or("activation_scheme", "dynamic");
  if (activations != "dynamic" && activations != "static") {
    quant.at("activation_scheme").fail("dynamic or static");
  }
  if (const auto block = quant.find("weight_block_size")) {
    block->require_array();
    if (block->size() != 2) block->fail("two sizes, of N and of K");
    fp8_ = {Fp8Scheme::Scales::kBlock, block->element(0).as_int(1, INT32_MAX),
            block->element(1).as_int(1, INT32_MAX)};
  }
  targets_.add("Linear", quant.file(), quant.path());
}

void QuantConfig::read_modelopt_groups(const JsonNode& groups) {
  groups.require_object();
  for (const auto& [key, value] : groups.value().items()) {
    const JsonNode group(value, groups.file(), groups.path() + "." + key);
    group.require_object();
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

void QuantConfig::read_modelopt(const JsonNode& quant, bool nested) {
  const JsonNode algorithm = quant.at("quant_algo", kAlgorithms);
  const std::string name = algorithm.as_string();
  if (name == "FP8") {
    method_ = QuantMethod::kModelOptFp8;
  } else if (name == "NVFP4" || name == "NVFP4_AWQ") {
    method_ = QuantMethod::kModelOptNvfp4;
  } else {
    algorithm.fail(std::string("a supported algorithm: ") + kAlgorithms);
  }
  ignore_.match_parts();
  if (is_fp4(method_)) {
    if (nested && !quant.has("group_size")) {
      quant.fail("a group_size beside NVFP4: this form has no default");
    }
    if (quant.has("group_size")) require_group_of_16(quant);
  }
  if (const auto groups = quant.find("config_groups")) read_modelopt_groups(*groups);
  if (targets_.entries().empty()) targets_.add("Linear", quant.file(), quant.path());
}

void QuantConfig::read_kv_cache(const JsonNode& quant) {
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
    const auto node = quant.find(key);
    if (!node) continue;
    const KvAlgorithm algorithm = read_kv_algorithm(*node);
    const Json& value = node->value();
    const std::string text = std::string(key) + ", " + printable(value.dump());
    if (!kv_text_.empty() && algorithm != kv_) {
      throw InputError(quant.file(), node->path(), "what is in " + at_ + "." + kv_text_,
                       at_ + "." + text);
    }
    kv_ = algorithm;
    kv_text_ = text;
  }
}

QuantConfig QuantConfig::parse_nested(const Json& json, const std::string& file) {
  QuantConfig q;
  q.file_ = file;
  q.at_ = "quantization";
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

void QuantConfig::hold_against_nested(const QuantConfig& nested) const {
  if (method_ != nested.method_) {
    throw InputError(nested.file_, "quantization.quant_algo",
                     std::string("what ") + file_ + " has, " + to_string(method_),
                     to_string(nested.method_));
  }
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

Fp8Scheme QuantConfig::fp8_scheme_of(std::string_view module) const {
  const Group* found = group_of(module);
  return found != nullptr ? found->fp8 : fp8_;
}

}  // namespace quern::smoke
