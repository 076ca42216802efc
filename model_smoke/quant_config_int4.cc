// GPTQ and AWQ: what their configs say of the int4 weights of a module.
#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {
namespace {

constexpr int64_t kLargestGroup = INT32_MAX;

int64_t read_group_size(const JsonNode& at, const char* key) {
  const int64_t size = at.int_at(key, -1, kLargestGroup);
  if (size == 0) at.at(key).fail("-1 or a positive number of columns");
  return size;
}

}  // namespace

void QuantConfig::read_gptq(const JsonNode& quant) {
  method_ = QuantMethod::kGptq;
  if (quant.int_at("bits", 1, 64) != 4) quant.at("bits").fail("4");
  if (quant.string_or("pack_dtype", "int32") != "int32") quant.at("pack_dtype").fail("int32");
  // v1 stores zero - 1, v2 the zero. The field decides, and symmetric content must agree.
  const std::string format = quant.string_or("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    quant.at("checkpoint_format").fail("gptq or gptq_v2");
  }
  int4_.storage = Int4Storage::kGptq;
  int4_.group = read_group_size(quant, "group_size");
  int4_.symmetric = quant.bool_or("sym", true);
  int4_.act_order = quant.bool_or("desc_act", false);
  int4_.zero_offset = format == "gptq" ? 1 : 0;
  targets_.add("Linear", quant.file(), quant.path());
  if (const auto rules = quant.find("dynamic")) read_dynamic(*rules);
}

void QuantConfig::read_dynamic(const JsonNode& rules) {
  rules.require_object();
  for (const auto& [text, value] : rules.value().items()) {
    const JsonNode change(value, rules.file(), rules.path() + "[\"" + printable(text) + "\"]");
    const bool excludes = text.starts_with("-:");
    const std::string expression = excludes || text.starts_with("+:") ? text.substr(2) : text;
    Rule rule{.pattern = ModulePattern("re:" + expression, change.file(), change.path()),
              .text = text,
              .excludes = excludes};
    // An excluded module may have {}, or false.
    if (!excludes) {
      change.require_object();
      if (change.has("bits")) rule.bits = change.int_at("bits", 1, 64);
      if (change.has("group_size")) rule.group = read_group_size(change, "group_size");
      if (const auto sym = change.find("sym")) rule.symmetric = sym->as_bool();
      if (const auto act = change.find("desc_act")) rule.act_order = act->as_bool();
    }
    if (dynamic_.size() == ModuleList::kMaxPatterns) rules.fail("at most 1000 rules");
    dynamic_.push_back(std::move(rule));
  }
}

void QuantConfig::read_awq(const JsonNode& quant) {
  method_ = QuantMethod::kAwq;
  const char* bits = quant.has("bits") ? "bits" : "w_bit";
  if (quant.int_at(bits, 1, 64) != 4) quant.at(bits).fail("4");
  std::string version = quant.string_or("version", "gemm");
  for (char& c : version) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (version != "gemm") quant.at("version").fail("gemm");
  int4_.storage = Int4Storage::kAwq;
  int4_.group = read_group_size(quant, quant.has("group_size") ? "group_size" : "q_group_size");
  int4_.symmetric = !quant.bool_or("zero_point", true);
  targets_.add("Linear", quant.file(), quant.path());
  if (const auto list = quant.find("modules_to_not_convert")) {
    list->require_array();
    for (size_t i = 0; i < list->size(); ++i) {
      const JsonNode entry = list->element(i);
      if (entry.as_string().empty()) entry.fail("a part of a name");
      substrings_.push_back(entry.as_string());
    }
  }
}

const QuantConfig::Rule* QuantConfig::rule_of(std::string_view module) const {
  const Rule* first = nullptr;
  for (const Rule& rule : dynamic_) {
    if (!rule.pattern.matches(module)) continue;
    const bool same =
        first == nullptr || (rule.excludes == first->excludes && rule.bits == first->bits &&
                             rule.group == first->group && rule.symmetric == first->symmetric &&
                             rule.act_order == first->act_order);
    if (!same) {
      throw InputError(file_, "quantization_config.dynamic",
                       "rules that say the same of " + std::string(module),
                       "\"" + printable(first->text) + "\" and \"" + printable(rule.text) + "\"",
                       "the first one in the file counts, and JSON objects have no order");
    }
    if (first == nullptr) first = &rule;
  }
  return first;
}

Int4Scheme QuantConfig::int4_scheme_of(std::string_view module) const {
  Int4Scheme scheme = int4_;
  if (const Rule* rule = rule_of(module)) {
    if (rule->bits.value_or(4) != 4) {
      throw InputError(file_, "quantization_config.dynamic[\"" + printable(rule->text) + "\"].bits",
                       "4", std::to_string(*rule->bits));
    }
    scheme.group = rule->group.value_or(scheme.group);
    scheme.symmetric = rule->symmetric.value_or(scheme.symmetric);
    scheme.act_order = rule->act_order.value_or(scheme.act_order);
  }
  const Group* found = group_of(module);
  return found != nullptr ? found->int4 : scheme;
}

const QuantConfig::Group* QuantConfig::group_of(std::string_view module) const {
  const Group* found = nullptr;
  for (const Group& group : groups_) {
    if (group.targets.find(module) == nullptr) continue;
    if (found != nullptr && !(found->int4 == group.int4 && found->fp8 == group.fp8)) {
      throw InputError(file_, at_ + ".config_groups", "one group for " + std::string(module),
                       "two that differ");
    }
    found = &group;
  }
  return found;
}

}  // namespace quern::smoke
