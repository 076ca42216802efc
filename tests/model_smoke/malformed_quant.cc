// reliability.md 5.2 "quantization config"; bug log L01, L02, L04; loading-rules.md A8, A9, B14.
#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

constexpr char kUp[] = "model.layers.0.mlp.up_proj";

Json compressed_tensors(const Json& ignore) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"ignore", ignore},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"output_activations", nullptr},
              {"weights",
               {{"num_bits", 8},
                {"type", "int"},
                {"symmetric", true},
                {"strategy", "channel"},
                {"dynamic", false},
                {"group_size", nullptr}}},
              {"input_activations",
               {{"num_bits", 8},
                {"type", "int"},
                {"symmetric", true},
                {"strategy", "token"},
                {"dynamic", true},
                {"group_size", nullptr}}}}}}}};
}

MalformedCase quant_case(std::string name, std::function<void(Json*)> bend, std::string key,
                         std::string reason) {
  return {"quant_" + name,
          [bend](TestModel* m) { bend(&m->config["quantization_config"]); },
          {"config.json", std::move(key), std::move(reason)},
          true};
}

// The same model under a compressed-tensors config, bent at a JSON pointer.
MalformedCase ct_case(std::string name, std::string pointer, Json value, std::string reason) {
  const std::string key = pointer.substr(pointer.rfind('/') + 1);
  return quant_case(
      "ct_" + name,
      [pointer, value](Json* q) {
        *q = compressed_tensors((*q)["ignore"]);
        (*q)[Json::json_pointer(pointer)] = value;
      },
      key, std::move(reason));
}

MalformedCase tensor_case(std::string name, std::function<void(TestModel*)> bend,
                          std::vector<std::string> says) {
  says.insert(says.begin(), "model.safetensors");
  return {"quant_" + name, std::move(bend), std::move(says), true};
}

void add_methods(std::vector<MalformedCase>* out) {
  const std::string known =
      "w8a8_int8, fp8, modelopt, gptq, awq, or compressed-tensors with format int-quantized, "
      "pack-quantized, float-quantized or nvfp4-pack-quantized";
  for (const char* method : {"GPTQ", "marlin", "FP8", "ModelOpt", "bitsandbytes", "W8A8_INT8"}) {
    out->push_back(quant_case(
        std::string("method_") + method, [method](Json* q) { (*q)["quant_method"] = method; },
        "quant_method", known));
  }
  out->push_back(quant_case(
      "method_missing", [](Json* q) { q->erase("quant_method"); }, "quant_method", known));
  out->push_back(quant_case(
      "method_number", [](Json* q) { (*q)["quant_method"] = 8; }, "quant_method", "a string"));
  out->push_back(quant_case(
      "not_an_object", [](Json* q) { *q = 8; }, "quantization_config", "an object"));
  out->push_back(quant_case(
      "static_activations", [](Json* q) { (*q)["activation_scheme"] = "static"; },
      "activation_scheme", "dynamic"));
  out->push_back(quant_case(
      "ignore_string", [](Json* q) { (*q)["ignore"] = "lm_head"; }, "ignore", "an array"));
  out->push_back(quant_case(
      "ignore_number", [](Json* q) { (*q)["ignore"].push_back(1); }, "ignore[", "a string"));
  out->push_back(quant_case(
      "ignore_empty", [](Json* q) { (*q)["ignore"].push_back(""); }, "ignore[",
      "a name or a pattern"));
  out->push_back(quant_case(
      "ignore_bad_regex", [](Json* q) { (*q)["ignore"].push_back("re:("); }, "ignore[",
      "a valid regular expression"));
  out->push_back(quant_case(
      "ignore_regex_bomb",
      [](Json* q) {
        (*q)["ignore"].insert((*q)["ignore"].begin(),
                              "re:^([a-z_.0-9]|[a-z_.0-9][a-z_.0-9])*[XY]$");
      },
      "ignore[0]", "bounded time"));
  out->push_back(quant_case(
      "ignore_too_many_patterns",
      [](Json* q) {
        for (int i = 0; i < 1001; ++i) (*q)["ignore"].push_back("re:x");
      },
      "ignore[", "1000 patterns"));
}

void add_schemes(std::vector<MalformedCase>* out) {
  const std::string w = "/config_groups/group_0/weights/";
  const std::string a = "/config_groups/group_0/input_activations/";
  out->push_back(ct_case("unknown_format", "/format", "marlin-24", "int-quantized"));
  out->push_back(ct_case("no_format", "/format", nullptr, "a string"));
  for (const Json& bits : {Json(0), Json(3), Json(4), Json(16), Json("8"), Json(nullptr)}) {
    out->push_back(
        ct_case("bits_" + std::to_string(out->size()), w + "num_bits", bits, "expected"));
  }
  out->push_back(ct_case("float", w + "type", "float", "int"));
  out->push_back(ct_case("asymmetric", w + "symmetric", false, "true"));
  out->push_back(ct_case("per_tensor", w + "strategy", "tensor", "channel"));
  out->push_back(ct_case("grouped", w + "group_size", 128, "null with strategy channel"));
  out->push_back(ct_case("dynamic_weights", w + "dynamic", true, "false"));
  out->push_back(ct_case("static_acts", a + "dynamic", false, "true"));
  out->push_back(ct_case("tensor_acts", a + "strategy", "tensor", "token"));
  out->push_back(ct_case("asymmetric_acts", a + "symmetric", false, "true"));
  out->push_back(
      ct_case("weight_only", "/config_groups/group_0/input_activations", nullptr, "an object"));
  out->push_back(ct_case("no_groups", "/config_groups", Json::object(), "at least one group"));
  out->push_back(ct_case("groups_array", "/config_groups", Json::array(), "an object"));
  out->push_back(ct_case("no_targets", "/config_groups/group_0/targets", Json::array(),
                         "at least one target"));
  out->push_back(ct_case("kv_cache", "/kv_cache_scheme", 8, "the name of an algorithm"));
  out->push_back(ct_case("kv_cache_dynamic", "/kv_cache_scheme",
                         {{"num_bits", 8}, {"type", "float"}, {"dynamic", true}}, "false"));
  out->push_back(ct_case("sparse", "/sparsity_config", {{"format", "sparse-24"}}, "nothing"));
  out->push_back(ct_case("transform", "/transform_config", {{"config_groups", 1}}, "nothing"));
  out->push_back(ct_case("calibrating", "/quantization_status", "calibration", "compressed"));
  out->push_back(ct_case("output_acts", "/config_groups/group_0/output_activations",
                         {{"num_bits", 8}}, "null"));
}

void add_tensors(std::vector<MalformedCase>* out) {
  const std::string weight = std::string(kUp) + ".weight";
  const std::string scale = weight + "_scale";
  out->push_back(tensor_case("scale_missing",
                             [scale](TestModel* m) {
                               std::erase_if(m->tensors,
                                             [&](const TestTensor& t) { return t.name == scale; });
                             },
                             {scale, "a scale for"}));
  const auto reshape = [&](const char* name, std::vector<int64_t> shape, size_t floats) {
    out->push_back(tensor_case(name,
                               [scale, shape, floats](TestModel* m) {
                                 m->tensor(scale).shape = shape;
                                 m->tensor(scale).bytes.resize(4 * floats);
                               },
                               {scale, "[24, 1] or [24]"}));
  };
  reshape("scale_of_tensor", {1}, 1);
  reshape("scale_scalar", {}, 1);
  reshape("scale_short", {23, 1}, 23);
  reshape("scale_row", {1, 24}, 24);
  reshape("scale_grid", {24, 2}, 48);
  out->push_back(tensor_case("scale_f16",
                             [scale](TestModel* m) {
                               m->tensor(scale).dtype = "F16";
                               m->tensor(scale).bytes.resize(48);
                             },
                             {scale, "F32 or BF16", "F16"}));
  const auto set_scale = [&](const char* name, float v, const char* reason) {
    out->push_back(tensor_case(name,
                               [scale, v](TestModel* m) {
                                 m->tensor(scale).bytes.replace(
                                     8, 4, reinterpret_cast<const char*>(&v), 4);
                               },
                               {scale, reason, "at index 2"}));
  };
  set_scale("scale_negative", -0.5f, "not negative");
  set_scale("scale_nan", __builtin_nanf(""), "NaN");
  set_scale("scale_inf", __builtin_inff(), "infinity");
  out->push_back(
      tensor_case("weight_ignored",
                  [](TestModel* m) { m->config["quantization_config"]["ignore"].push_back(kUp); },
                  {weight, "config.json", "ignore entry", kUp, "I8 [24, 16]"}));
  out->push_back(
      tensor_case("weight_plain_not_ignored",
                  [](TestModel* m) {
                    Json& ignore = m->config["quantization_config"]["ignore"];
                    ignore.erase(ignore.size() - 1);
                  },
                  {"in_proj_a.weight", "config.json", "no ignore entry", "BF16 [2, 16]"}));
  out->push_back(tensor_case("no_config",
                             [](TestModel* m) { m->config.erase("quantization_config"); },
                             {"weight", "no quantization_config", "I8"}));
  out->push_back(tensor_case(
      "scale_beside_plain",
      [](TestModel* m) {
        m->tensors.push_back({"lm_head.weight_scale", "F32", {260, 1}, std::string(1040, '\1')});
      },
      {"lm_head.weight_scale", "no scale beside"}));
  out->push_back(
      tensor_case("two_formats",
                  [](TestModel* m) {
                    m->tensors.push_back(
                        {std::string(kUp) + ".qweight", "I32", {2, 24}, std::string(192, '\1')});
                  },
                  {std::string(kUp) + ".qweight", "another format", weight}));
  out->push_back(tensor_case("weight_e4m3",
                             [weight](TestModel* m) { m->tensor(weight).dtype = "F8_E4M3"; },
                             {weight, "BF16, F16, F32 or I8"}));
  out->push_back(tensor_case("weight_empty",
                             [weight](TestModel* m) {
                               m->tensor(weight).shape = {24, 0};
                               m->tensor(weight).bytes.clear();
                             },
                             {weight, "not empty"}));
  out->push_back(tensor_case("weight_3d",
                             [weight](TestModel* m) {
                               m->tensor(weight).shape = {24, 16, 1};
                             },
                             {weight, "a matrix"}));
}

MalformedCase two_places_case() {
  return {"quant_in_two_places",
          [](TestModel* m) { m->config["compression_config"] = compressed_tensors({"lm_head"}); },
          {"config.json", "compression_config", "the same as quantization_config"},
          true};
}

}  // namespace

std::vector<MalformedCase> malformed_quant() {
  std::vector<MalformedCase> out;
  add_methods(&out);
  add_schemes(&out);
  add_tensors(&out);
  out.push_back(two_places_case());
  return out;
}

}  // namespace quern::smoke::test
