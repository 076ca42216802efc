#include "model_smoke/quant_config.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr uint64_t kMaxConfigBytes = 16'000'000;
constexpr char kSupported[] =
    "w8a8_int8, gptq, awq, or compressed-tensors with format int-quantized or pack-quantized";

void read_list(const JsonNode& list, ModuleList* to) {
  list.require_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode entry = list.element(i);
    to->add(entry.as_string(), entry.file(), entry.path());
  }
}

// One side of a compressed-tensors scheme: symmetric 8-bit integers.
void check_int8_scheme(const JsonNode& scheme, const char* strategy, bool dynamic) {
  scheme.require_object();
  if (scheme.int_at("num_bits", 1, 64) != 8) scheme.at("num_bits").fail("8");
  if (scheme.string_or("type", "int") != "int") scheme.at("type").fail("int");
  if (!scheme.bool_or("symmetric", true)) scheme.at("symmetric").fail("true");
  if (scheme.at("strategy", strategy).as_string() != strategy) {
    scheme.at("strategy").fail(strategy);
  }
  const auto is_dynamic = scheme.find("dynamic");
  if (is_dynamic ? is_dynamic->as_bool() != dynamic : dynamic) {
    scheme.at("dynamic", "true").fail(dynamic ? "true" : "false");
  }
  for (const char* key : {"group_size", "block_structure", "actorder"}) {
    if (const auto set = scheme.find(key)) {
      set->fail(std::string("null with strategy ") + strategy);
    }
  }
}

void check_int8_group(const JsonNode& group) {
  check_int8_scheme(group.at("weights", "a scheme of 8-bit integers"), "channel", false);
  check_int8_scheme(group.at("input_activations", "a scheme of 8-bit integers"), "token", true);
}

// Weight-only 4-bit integers.
Int4Scheme read_int4_group(const JsonNode& group) {
  if (const auto in = group.find("input_activations")) {
    in->fail("null: with pack-quantized, activations are not quantized");
  }
  const JsonNode w = group.at("weights", "a scheme of 4-bit integers");
  w.require_object();
  if (w.int_at("num_bits", 1, 64) != 4) w.at("num_bits").fail("4");
  if (w.string_or("type", "int") != "int") w.at("type").fail("int");
  if (w.bool_or("dynamic", false)) w.at("dynamic").fail("false");
  if (const auto block = w.find("block_structure")) block->fail("null");
  Int4Scheme scheme;
  scheme.storage = Int4Storage::kRowMajor;
  scheme.symmetric = w.bool_or("symmetric", true);
  const std::string strategy = w.at("strategy", "group or channel").as_string();
  if (strategy == "group") {
    scheme.group = w.int_at("group_size", 1, INT32_MAX);
  } else if (strategy == "channel") {
    scheme.group = -1;
    if (const auto size = w.find("group_size"); size && size->as_int(-1, INT32_MAX) != -1) {
      size->fail("null or -1 with strategy channel");
    }
  } else {
    w.at("strategy").fail("group or channel");
  }
  // "weight" and "static" sort columns before they are grouped and put them back: nothing to do.
  const std::string order = w.string_or("actorder", "static");
  if (order != "group" && order != "weight" && order != "static" && order != "dynamic") {
    w.at("actorder").fail("group (dynamic), weight (static) or null");
  }
  scheme.act_order = order == "group" || order == "dynamic";
  return scheme;
}

// Settings that would change the numbers and that we do not compute.
void check_extras(const JsonNode& quant) {
  if (const auto kv = quant.find("kv_cache_scheme")) kv->fail("null");
  for (const char* key : {"sparsity_config", "transform_config"}) {
    const auto extra = quant.find(key);
    if (!extra || extra->size() == 0) continue;
    if (extra->value().is_object() && extra->string_or("format", "") == "dense") continue;
    extra->fail("nothing");
  }
  const std::string status = quant.string_or("quantization_status", "compressed");
  if (status != "compressed" && status != "frozen") {
    quant.at("quantization_status").fail("compressed or frozen");
  }
}

}  // namespace

void QuantConfig::read_compressed_tensors(const JsonNode& quant) {
  const JsonNode format = quant.at("format", "int-quantized or pack-quantized");
  const std::string name = format.as_string();
  if (name != "int-quantized" && name != "pack-quantized") {
    format.fail(std::string("a supported format: ") + kSupported);
  }
  const bool int4 = name == "pack-quantized";
  method_ = int4 ? QuantMethod::kCompressedTensorsInt4 : QuantMethod::kCompressedTensorsInt8;
  check_extras(quant);
  const JsonNode groups = quant.at("config_groups", "an object of groups");
  groups.require_object();
  if (groups.size() == 0) groups.fail("at least one group");
  for (const auto& [key, value] : groups.value().items()) {
    const JsonNode group(value, quant.file(), groups.path() + "." + key);
    group.require_object();
    if (const auto own = group.find("format"); own && own->as_string() != name) own->fail(name);
    if (const auto out = group.find("output_activations")) out->fail("null");
    const JsonNode list = group.at("targets", "an array of names");
    list.require_array();
    if (list.size() == 0) list.fail("at least one target");
    read_list(list, &targets_);
    if (!int4) {
      check_int8_group(group);
      continue;
    }
    groups_.push_back({{}, read_int4_group(group)});
    read_list(list, &groups_.back().targets);
  }
}

namespace {

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
  return parse(config, file);
}

QuantConfig QuantConfig::parse(const Json& config, const std::string& file) {
  QuantConfig q;
  q.file_ = file;
  const JsonNode root(config, file, "");
  const auto quant = find_quantization(root);
  if (!quant) return q;
  quant->require_object();
  const JsonNode method = quant->at("quant_method", kSupported);
  if (method.as_string() == "w8a8_int8") {
    q.method_ = QuantMethod::kW8A8Int8;
    const std::string scheme = quant->string_or("activation_scheme", "dynamic");
    if (scheme != "dynamic") quant->at("activation_scheme").fail("dynamic");
    q.targets_.add("Linear", file, quant->path());
  } else if (method.as_string() == "compressed-tensors") {
    q.read_compressed_tensors(*quant);
  } else if (method.as_string() == "gptq") {
    q.read_gptq(*quant);
  } else if (method.as_string() == "awq") {
    q.read_awq(*quant);
    return q;  // its modules_to_not_convert is another kind of list
  } else {
    method.fail(std::string("a supported method: ") + kSupported);
  }
  for (const char* key : {"ignore", "modules_to_not_convert"}) {
    if (const auto list = quant->find(key)) read_list(*list, &q.ignore_);
  }
  return q;
}

std::vector<std::string> QuantConfig::unmatched_entries(const Checkpoint& checkpoint) const {
  // lm_head is absent where embeddings are tied, and still a name writers list.
  std::set<std::string, std::less<>> modules = {"lm_head"};
  for (const std::string& name : checkpoint.names()) {
    modules.insert(without_language_model(name.substr(0, name.rfind('.'))));
  }
  const auto is_known = [&](const ModulePattern& p) {
    if (!p.is_name()) {
      return std::any_of(modules.begin(), modules.end(),
                         [&](const std::string& m) { return p.matches(m); });
    }
    const auto below = modules.lower_bound(p.name() + ".");
    return modules.contains(p.name()) ||
           (below != modules.end() && below->starts_with(p.name() + "."));
  };
  std::vector<std::string> warnings;
  const auto report = [&](const char* key, const std::string& text) {
    warnings.push_back(file_ + ": quantization_config." + key + ": \"" + printable(text) +
                       "\" matches no module of the checkpoint");
  };
  for (const ModulePattern& p : ignore_.entries()) {
    if (!is_known(p)) report("ignore", p.text());
  }
  for (const Rule& rule : dynamic_) {
    if (!is_known(rule.pattern)) report("dynamic", rule.text);
  }
  for (const std::string& part : substrings_) {
    const bool known = std::any_of(modules.begin(), modules.end(),
                                   [&](const std::string& m) { return has_part(m, part); });
    if (!known) report("modules_to_not_convert", part);
  }
  return warnings;
}

}  // namespace quern::smoke
