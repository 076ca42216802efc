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
constexpr char kSupported[] = "w8a8_int8, or compressed-tensors with format int-quantized";

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

void check_group(const JsonNode& group) {
  group.require_object();
  if (const auto format = group.find("format"); format && format->as_string() != "int-quantized") {
    format->fail("int-quantized");
  }
  check_int8_scheme(group.at("weights", "a scheme of 8-bit integers"), "channel", false);
  check_int8_scheme(group.at("input_activations", "a scheme of 8-bit integers"), "token", true);
  if (const auto out = group.find("output_activations")) out->fail("null");
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

void read_groups(const JsonNode& quant, ModuleList* targets) {
  const JsonNode groups = quant.at("config_groups", "an object of groups");
  groups.require_object();
  if (groups.size() == 0) groups.fail("at least one group");
  for (const auto& [name, value] : groups.value().items()) {
    const JsonNode group(value, quant.file(), groups.path() + "." + name);
    check_group(group);
    const JsonNode list = group.at("targets", "an array of names");
    list.require_array();
    if (list.size() == 0) list.fail("at least one target");
    read_list(list, targets);
  }
}

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

}  // namespace

const char* to_string(QuantMethod method) noexcept {
  switch (method) {
    case QuantMethod::kNone:
      return "none";
    case QuantMethod::kW8A8Int8:
      return "w8a8_int8";
    case QuantMethod::kCompressedTensorsInt8:
      return "compressed-tensors int-quantized";
  }
  return "?";
}

QuantConfig QuantConfig::load(const ModelDir& dir) {
  const std::string file = dir.label("config.json");
  return parse(parse_json(dir.read_text("config.json", kMaxConfigBytes), file), file);
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
    q.method_ = QuantMethod::kCompressedTensorsInt8;
    const JsonNode format = quant->at("format", "int-quantized");
    if (format.as_string() != "int-quantized") {
      format.fail(std::string("a supported format: ") + kSupported);
    }
    check_extras(*quant);
    read_groups(*quant, &q.targets_);
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
  for (const ModulePattern& p : ignore_.entries()) {
    if (is_known(p)) continue;
    warnings.push_back(file_ + ": quantization_config.ignore: \"" + printable(p.text()) +
                       "\" matches no module of the checkpoint");
  }
  return warnings;
}

}  // namespace quern::smoke
