#include "tests/model_smoke/float_model.h"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>

#include "model_smoke/safetensors.h"

namespace quern::smoke::test {
namespace {

std::string bytes_of(const void* data, size_t bytes) {
  return std::string(static_cast<const char*>(data), bytes);
}

std::string f32_bytes(const std::vector<float>& values) {
  return bytes_of(values.data(), values.size() * sizeof(float));
}

std::string bf16_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values) {
    uint32_t u;
    std::memcpy(&u, &v, 4);
    if (u & 0xffff) throw std::logic_error("bf16 does not hold this number");
    out += static_cast<char>(u >> 16 & 255);
    out += static_cast<char>(u >> 24);
  }
  return out;
}

std::string nibble_pairs(const FloatMatrix& m) {
  std::string out;
  for (int64_t n = 0; n < m.n; ++n) {
    for (int64_t k = 0; k < m.k; k += 2) {
      const size_t at = static_cast<size_t>(n * m.k + k);
      out += static_cast<char>(m.code[at] | (k + 1 < m.k ? m.code[at + 1] << 4 : 0));
    }
  }
  return out;
}

std::string raw_bytes(const std::vector<uint8_t>& v) {
  return bytes_of(v.data(), v.size());
}

std::vector<TestTensor> nvfp4_tensors(const std::string& module, const FloatMatrix& m, bool ct) {
  const auto scalar = [&](const char* suffix, float x) {
    const std::vector<int64_t> shape = ct ? std::vector<int64_t>{1} : std::vector<int64_t>{};
    return TestTensor{module + suffix, "F32", shape, f32_bytes({x})};
  };
  return {
      {module + (ct ? ".weight_packed" : ".weight"), "U8", {m.n, (m.k + 1) / 2}, nibble_pairs(m)},
      {module + ".weight_scale", "F8_E4M3", {m.n, (m.k + 15) / 16}, raw_bytes(m.block_scale)},
      scalar(ct ? ".weight_global_scale" : ".weight_scale_2", ct ? 1.0f / m.global : m.global),
      scalar(ct ? ".input_global_scale" : ".input_scale", 0.25f)};
}

TestTensor fp8_scale(const std::string& module, const FloatMatrix& m, FloatFile file) {
  if (file == FloatFile::kFp8Block || m.block_k > 0) {
    const char* suffix = file == FloatFile::kFp8Block ? ".weight_scale_inv" : ".weight_scale";
    return {module + suffix, "F32", {m.scale_rows(), m.scale_cols()}, f32_bytes(m.scale)};
  }
  std::vector<int64_t> shape;
  if (m.block_n == 1) {
    shape = file == FloatFile::kCtFp8 ? std::vector<int64_t>{m.n, 1} : std::vector<int64_t>{m.n};
  } else if (file == FloatFile::kCtFp8) {
    shape = {1};
  }
  return {module + ".weight_scale", "F32", shape, f32_bytes(m.scale)};
}

Json modelopt(const char* algorithm, const std::vector<std::string>& plain, int bits) {
  Json scheme = {{"dynamic", false}, {"num_bits", bits}, {"type", "float"}};
  if (bits == 4) scheme["group_size"] = 16;
  return {{"quant_method", "modelopt"},
          {"quant_algo", algorithm},
          {"ignore", plain},
          {"producer", {{"name", "modelopt"}, {"version", "0.41.0"}}},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}}, {"weights", scheme}, {"input_activations", scheme}}}}}};
}

Json compressed(const char* format, const Json& weights, const std::vector<std::string>& plain) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"ignore", plain},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}}}}}};
}

FloatMatrix read_matrix(const std::map<std::string, TestTensor>& t, const std::string& module,
                        const Json& quant) {
  FloatMatrix m;
  const TestTensor& weight = t.at(module + ".weight");
  m.n = weight.shape[0];
  if (weight.dtype == "F8_E4M3") {
    m.k = weight.shape[1];
    m.code.assign(weight.bytes.begin(), weight.bytes.end());
    m.block_n = quant.at("weight_block_size")[0];
    m.block_k = quant.at("weight_block_size")[1];
    const std::string& scale = t.at(module + ".weight_scale_inv").bytes;
    m.scale.resize(scale.size() / 4);
    std::memcpy(m.scale.data(), scale.data(), scale.size());
    return m;
  }
  m.k = 2 * weight.shape[1];
  for (const char c : weight.bytes) {
    m.code.push_back(static_cast<uint8_t>(c & 15));
    m.code.push_back(static_cast<uint8_t>(c >> 4 & 15));
  }
  const std::string& scale = t.at(module + ".weight_scale").bytes;
  m.block_scale.assign(scale.begin(), scale.end());
  std::memcpy(&m.global, t.at(module + ".weight_scale_2").bytes.data(), 4);
  return m;
}

bool is_part(const std::string& name, const std::map<std::string, TestTensor>& tensors) {
  const std::string module = name.substr(0, name.rfind('.'));
  const auto weight = tensors.find(module + ".weight");
  if (weight == tensors.end()) return false;
  const bool quantized = weight->second.dtype == "F8_E4M3" || weight->second.dtype == "U8";
  return quantized &&
         (name.ends_with(".weight") || name.find(".weight_scale") != std::string::npos ||
          name.ends_with(".input_scale"));
}

}  // namespace

const char* name_of(FloatFile file) {
  constexpr const char* kNames[] = {"plain",      "plain_bf16",   "fp8_block",      "fp8",
                                    "ct_fp8",     "modelopt_fp8", "modelopt_nvfp4", "nested_nvfp4",
                                    "both_nvfp4", "ct_nvfp4"};
  return kNames[static_cast<int>(file)];
}

bool is_nvfp4(FloatFile file) {
  return file >= FloatFile::kModelOptNvfp4;
}

int64_t FloatMatrix::scale_rows() const {
  return block_n < 0 ? 1 : (n + block_n - 1) / block_n;
}
int64_t FloatMatrix::scale_cols() const {
  return block_k < 0 ? 1 : (k + block_k - 1) / block_k;
}

double e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? mantissa * 0x1p-9 : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

uint8_t nearest_e4m3(float x) {
  const double a = std::fabs(static_cast<double>(x));
  int best = 0;
  for (int code = 0; code < 0x7f; ++code) {
    const double d = std::fabs(e4m3_value(static_cast<uint8_t>(code)) - a);
    const double least = std::fabs(e4m3_value(static_cast<uint8_t>(best)) - a);
    if (d < least || (d == least && code % 2 == 0)) best = code;
  }
  if (std::isinf(x)) best = 0x7e;
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

double e2m1_value(uint8_t code) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

std::vector<float> FloatMatrix::values() const {
  std::vector<float> out;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const uint8_t x = code[static_cast<size_t>(r * k + c)];
      if (!block_scale.empty()) {
        const int64_t blocks = (k + 15) / 16;
        const double block = e4m3_value(block_scale[static_cast<size_t>(r * blocks + c / 16)]);
        out.push_back(static_cast<float>(e2m1_value(x) * block) * global);
      } else {
        const int64_t row = block_n < 0 ? 0 : r / block_n, col = block_k < 0 ? 0 : c / block_k;
        out.push_back(static_cast<float>(e4m3_value(x)) *
                      scale[static_cast<size_t>(row * scale_cols() + col)]);
      }
    }
  }
  return out;
}

std::vector<TestTensor> float_tensors(const std::string& module, const FloatMatrix& m,
                                      FloatFile file) {
  if (file == FloatFile::kPlain) {
    return {{module + ".weight", "F32", {m.n, m.k}, f32_bytes(m.values())}};
  }
  if (file == FloatFile::kPlainBf16) {
    return {{module + ".weight", "BF16", {m.n, m.k}, bf16_bytes(m.values())}};
  }
  if (is_nvfp4(file)) return nvfp4_tensors(module, m, file == FloatFile::kCtNvfp4);
  std::vector<TestTensor> out = {{module + ".weight", "F8_E4M3", {m.n, m.k}, raw_bytes(m.code)},
                                 fp8_scale(module, m, file)};
  if (file == FloatFile::kModelOptFp8) {
    out.push_back({module + ".input_scale", "F32", {}, f32_bytes({0.25f})});
  }
  return out;
}

void set_float_config(TestModel& model, FloatFile file, const FloatMatrix& any,
                      const std::vector<std::string>& plain) {
  Json& quant = model.config["quantization_config"];
  Json fp8_weights = {{"num_bits", 8},
                      {"type", "float"},
                      {"symmetric", true},
                      {"dynamic", false},
                      {"group_size", nullptr},
                      {"block_structure", nullptr},
                      {"strategy", any.block_n == 1 ? "channel" : "tensor"}};
  if (any.block_k > 0 && any.block_n == 1) {
    fp8_weights["strategy"] = "group";
    fp8_weights["group_size"] = any.block_k;
  } else if (any.block_k > 0) {
    fp8_weights["strategy"] = "block";
    fp8_weights["block_structure"] = {any.block_n, any.block_k};
  }
  const Json fp4_weights = {{"num_bits", 4},    {"type", "float"},  {"symmetric", true},
                            {"dynamic", false}, {"group_size", 16}, {"strategy", "tensor_group"}};
  model.raw.erase("hf_quant_config.json");
  switch (file) {
    case FloatFile::kPlain:
    case FloatFile::kPlainBf16:
      model.config.erase("quantization_config");
      return;
    case FloatFile::kFp8Block:
    case FloatFile::kFp8:
      quant = {{"quant_method", "fp8"},
               {"fmt", "e4m3"},
               {"activation_scheme", "dynamic"},
               {"modules_to_not_convert", plain}};
      if (file == FloatFile::kFp8Block) quant["weight_block_size"] = {any.block_n, any.block_k};
      return;
    case FloatFile::kCtFp8:
      quant = compressed("float-quantized", fp8_weights, plain);
      return;
    case FloatFile::kCtNvfp4:
      quant = compressed("nvfp4-pack-quantized", fp4_weights, plain);
      return;
    case FloatFile::kModelOptFp8:
      quant = modelopt("FP8", plain, 8);
      return;
    case FloatFile::kModelOptNvfp4:
    case FloatFile::kNestedNvfp4:
    case FloatFile::kBothNvfp4:
      quant = modelopt("NVFP4", plain, 4);
      break;
  }
  if (file == FloatFile::kModelOptNvfp4) return;
  write_nested(model, {{"producer", {{"name", "modelopt"}, {"version", "0.41.0"}}},
                       {"quantization",
                        {{"quant_algo", "NVFP4"},
                         {"kv_cache_quant_algo", nullptr},
                         {"group_size", 16},
                         {"exclude_modules", plain}}}});
  if (file == FloatFile::kNestedNvfp4) model.config.erase("quantization_config");
}

Json read_nested(const TestModel& model) {
  return Json::parse(model.raw.at("hf_quant_config.json"));
}
void write_nested(TestModel& model, const Json& nested) {
  model.raw["hf_quant_config.json"] = nested.dump(1);
}

TestModel tiny_float_model(const TinyFloat& style) {
  TestModel m = tiny_model();
  std::vector<std::string> plain = {"lm_head"};
  std::vector<TestTensor> out;
  FloatMatrix last;
  for (TestTensor& t : m.tensors) {
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    const bool narrow = module.ends_with("in_proj_a") || module.ends_with("in_proj_b");
    const bool projection = module.find("_proj") != std::string::npos;
    if (narrow && !style.uniform) plain.push_back(module);
    if (!projection || (narrow && !style.uniform)) {
      out.push_back(std::move(t));
      continue;
    }
    FloatMatrix w;
    w.n = t.shape[0];
    w.k = t.shape[1];
    const FloatFile form = style.form ? style.form(module) : style.file;
    const bool fp4 = is_nvfp4(form);
    for (int64_t i = 0; i < w.n * w.k; ++i) {
      const int x = t.bytes[static_cast<size_t>(2 * i)] * 5 + static_cast<int>(i);
      w.code.push_back(static_cast<uint8_t>(fp4 ? x & 15 : (x & 0x87) | 0x30));  // 0.5 to 0.94
    }
    w.block_n = style.block_n;
    w.block_k = style.block_k;
    for (int64_t i = 0; !fp4 && i < w.scale_rows() * w.scale_cols(); ++i) {
      w.scale.push_back(0.1f + 0.01f * static_cast<float>(i * 7 % 11));
    }
    for (int64_t i = 0; fp4 && i < w.n * ((w.k + 15) / 16); ++i) {
      w.block_scale.push_back(static_cast<uint8_t>(0x38 + i * 5 % 16));  // 1 to 3.75
    }
    w.global = 0.013f;
    if (style.bend) style.bend(module, w);
    const FloatFile written = style.numbers ? FloatFile::kPlain : form;
    for (TestTensor& part : float_tensors(module, w, written)) out.push_back(std::move(part));
    last = w;
  }
  m.tensors = std::move(out);
  set_float_config(m, style.numbers ? FloatFile::kPlain : style.file, last, plain);
  return m;
}

TestModel reencoded_float(const std::string& dir, FloatFile file, const BendMatrix& bend) {
  TestModel m;
  m.config = Json::parse(read_file(dir + "/config.json"));
  const Json quant = m.config.at("quantization_config");
  std::map<std::string, TestTensor> tensors;
  const SafetensorsFile in(FileMap::open_user_file(dir + "/model.safetensors"));
  for (const TensorView& t : in.tensors()) {
    tensors[t.name] = {t.name, to_string(t.dtype), t.shape, bytes_of(t.data, t.bytes)};
  }
  FloatMatrix last;
  for (const auto& [name, tensor] : tensors) {
    if (!is_part(name, tensors)) {
      m.tensors.push_back(tensor);
      continue;
    }
    if (!name.ends_with(".weight")) continue;
    const std::string module = name.substr(0, name.rfind('.'));
    last = read_matrix(tensors, module, quant);
    if (bend) bend(module, last);
    for (TestTensor& part : float_tensors(module, last, file)) m.tensors.push_back(std::move(part));
  }
  const char* list = quant.contains("ignore") ? "ignore" : "modules_to_not_convert";
  set_float_config(m, file, last, quant.at(list).get<std::vector<std::string>>());
  if (quant.contains("kv_cache_scheme")) {
    if (m.config.contains("quantization_config")) {
      m.config["quantization_config"]["kv_cache_scheme"] = quant.at("kv_cache_scheme");
    }
    if (m.raw.contains("hf_quant_config.json")) {
      Json nested = read_nested(m);
      nested["quantization"]["kv_cache_quant_algo"] = "FP8";
      write_nested(m, nested);
    }
  }
  for (const auto& [name, json] : {std::pair{"tokenizer.json", &m.tokenizer},
                                   std::pair{"generation_config.json", &m.generation}}) {
    if (std::filesystem::exists(dir + "/" + name)) {
      *json = Json::parse(read_file(dir + "/" + name));
    } else {
      m.absent.push_back(name);
    }
  }
  return m;
}

void invertible_global(const std::string&, FloatMatrix& matrix) {
  matrix.global = 1.0f / (1.0f / matrix.global);
}

TestTensor pre_quant_scale(const std::string& module, const std::vector<float>& factors) {
  return {module + ".pre_quant_scale",
          "BF16",
          {static_cast<int64_t>(factors.size())},
          bf16_bytes(factors)};
}

TestModel tiny_kv_model(const Json& kv) {
  TestModel m = tiny_model();
  m.config["quantization_config"] = {{"quant_method", "fp8"},
                                     {"modules_to_not_convert", {"model", "lm_head"}}};
  if (!kv.is_null()) m.config["quantization_config"]["kv_cache_scheme"] = kv;
  return m;
}

void add_kv_scales(TestModel& model, float k, float v) {
  const std::string at = "model.layers.1.self_attn.";
  model.tensors.push_back({at + "k_proj.k_scale", "F32", {}, f32_bytes({k})});
  model.tensors.push_back({at + "v_proj.v_scale", "F32", {}, f32_bytes({v})});
}

}  // namespace quern::smoke::test
