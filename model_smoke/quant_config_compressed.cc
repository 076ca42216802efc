// compressed-tensors: int8 and int4 integers, e4m3 and NVFP4.
#include <charconv>
#include <system_error>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {
namespace {

constexpr char kFormats[] =
    "int-quantized, pack-quantized, float-quantized or nvfp4-pack-quantized";

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

/// Activations stay bf16 here, whatever scales the file has for them.
void check_float_activations(const JsonNode& group, int64_t bits) {
  const auto in = group.find("input_activations");
  if (!in) return;
  in->require_object();
  if (in->int_at("num_bits", 1, 64) != bits) in->at("num_bits").fail(std::to_string(bits));
  if (in->at("type", "float").as_string() != "float") in->at("type").fail("float");
}

void check_float_weights(const JsonNode& w, int64_t bits) {
  w.require_object();
  if (w.int_at("num_bits", 1, 64) != bits) w.at("num_bits").fail(std::to_string(bits));
  if (w.at("type", "float").as_string() != "float") w.at("type").fail("float");
  if (!w.bool_or("symmetric", true)) w.at("symmetric").fail("true");
  if (w.bool_or("dynamic", false)) w.at("dynamic").fail("false");
}

/// [128, 128], which older writers spelled "128x128".
Fp8Scheme read_block_structure(const JsonNode& at) {
  constexpr char kExpected[] = "two sizes, of N and of K";
  Fp8Scheme scheme{.scales = Fp8Scheme::Scales::kBlock};
  if (at.value().is_string()) {
    const std::string& text = at.as_string();
    const char* const end = text.data() + text.size();
    const auto n = std::from_chars(text.data(), end, scheme.block_n);
    if (n.ec != std::errc() || n.ptr == end || *n.ptr != 'x') at.fail(kExpected);
    const auto k = std::from_chars(n.ptr + 1, end, scheme.block_k);
    if (k.ec != std::errc() || k.ptr != end) at.fail(kExpected);
  } else {
    at.require_array();
    if (at.size() != 2) at.fail(kExpected);
    scheme.block_n = at.element(0).as_int(1, INT32_MAX);
    scheme.block_k = at.element(1).as_int(1, INT32_MAX);
  }
  for (const int64_t size : {scheme.block_n, scheme.block_k}) {
    if (size < 1 || size > INT32_MAX) at.fail(kExpected);
  }
  return scheme;
}

// The strategies of compressed-tensors, each with the key that belongs to it and no other.
Fp8Scheme read_fp8_group(const JsonNode& group) {
  constexpr char kStrategies[] = "tensor, channel, group or block";
  check_float_activations(group, 8);
  const JsonNode w = group.at("weights", "a scheme of 8-bit floating point");
  check_float_weights(w, 8);
  const std::string strategy = w.at("strategy", kStrategies).as_string();
  const bool by_group = strategy == "group", by_block = strategy == "block";
  if (!by_group && !by_block && strategy != "tensor" && strategy != "channel") {
    w.at("strategy").fail(kStrategies);
  }
  if (const auto set = w.find("group_size"); set && !by_group) {
    const bool all_of_k = strategy == "channel" && set->value() == -1;
    if (!all_of_k) set->fail("null with strategy " + strategy);
  }
  if (const auto set = w.find("block_structure"); set && !by_block) {
    set->fail("null with strategy " + strategy);
  }
  if (by_block) return read_block_structure(w.at("block_structure", "two sizes, of N and of K"));
  if (by_group) {
    return {Fp8Scheme::Scales::kBlock, 1, w.int_at("group_size", 1, INT32_MAX)};
  }
  return {.scales =
              strategy == "tensor" ? Fp8Scheme::Scales::kTensor : Fp8Scheme::Scales::kChannel};
}

void check_nvfp4_group(const JsonNode& group) {
  check_float_activations(group, 4);
  const JsonNode w = group.at("weights", "a scheme of 4-bit floating point");
  check_float_weights(w, 4);
  if (w.string_or("strategy", "tensor_group") != "tensor_group") {
    w.at("strategy").fail("tensor_group");
  }
  if (w.int_or("group_size", 16, 1, INT32_MAX) != 16) w.at("group_size").fail("16");
}

}  // namespace

void QuantConfig::read_compressed_tensors(const JsonNode& quant) {
  const JsonNode format = quant.at("format", kFormats);
  const std::string name = format.as_string();
  if (name == "int-quantized") {
    method_ = QuantMethod::kCompressedTensorsInt8;
  } else if (name == "pack-quantized") {
    method_ = QuantMethod::kCompressedTensorsInt4;
  } else if (name == "float-quantized") {
    method_ = QuantMethod::kCompressedTensorsFp8;
  } else if (name == "nvfp4-pack-quantized") {
    method_ = QuantMethod::kCompressedTensorsNvfp4;
  } else {
    format.fail(std::string("a supported format: ") + kFormats);
  }
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
    Group read;
    if (method_ == QuantMethod::kCompressedTensorsInt8) check_int8_group(group);
    if (method_ == QuantMethod::kCompressedTensorsInt4) read.int4 = read_int4_group(group);
    if (method_ == QuantMethod::kCompressedTensorsFp8) read.fp8 = read_fp8_group(group);
    if (method_ == QuantMethod::kCompressedTensorsNvfp4) check_nvfp4_group(group);
    read_list(list, &read.targets);
    groups_.push_back(std::move(read));
  }
}

}  // namespace quern::smoke
