#include "tests/model_smoke/int4_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "model_smoke/safetensors.h"
#include "model_smoke/session.h"
#include "tests/support/int4_words.h"

namespace quern::smoke::test {
namespace {

using quern::test::Int4Words;

std::string bytes_of(const void* data, size_t bytes) {
  return std::string(static_cast<const char*>(data), bytes);
}

TestTensor words_tensor(const std::string& name, const Int4Words& w) {
  return {name, "I32", {w.rows, w.cols}, bytes_of(w.word.data(), w.word.size() * 4)};
}

Int4Storage storage_of(Int4File file) {
  return file == Int4File::kAwq                 ? Int4Storage::kAwq
         : file == Int4File::kCompressedTensors ? Int4Storage::kRowMajor
                                                : Int4Storage::kGptq;
}

/// [n, groups] as it is, or transposed.
TestTensor scale_tensor(const std::string& name, const Int4Matrix& m, bool by_column) {
  std::vector<uint16_t> bits;
  const int64_t groups = m.groups();
  for (int64_t i = 0; i < (by_column ? m.n : groups); ++i) {
    for (int64_t j = 0; j < (by_column ? groups : m.n); ++j) {
      bits.push_back(m.scale[static_cast<size_t>(by_column ? i * groups + j : j * groups + i)]);
    }
  }
  const std::vector<int64_t> shape =
      by_column ? std::vector<int64_t>{m.n, groups} : std::vector<int64_t>{groups, m.n};
  return {name, "F16", shape, bytes_of(bits.data(), bits.size() * 2)};
}

/// What the form stores for a zero.
std::vector<uint8_t> stored_zeros(const Int4Matrix& m, Int4File file) {
  std::vector<uint8_t> stored;
  for (const uint8_t zero : m.zero) {
    const int value = file == Int4File::kGptq ? zero - 1 : zero;
    if (value < 0 || value > 15) throw std::logic_error("this form has no such zero");
    stored.push_back(static_cast<uint8_t>(value));
  }
  return stored;
}

struct RawCheckpoint {
  Json config;
  std::map<std::string, TestTensor> tensors;

  const uint32_t* words(const std::string& name) const {
    return reinterpret_cast<const uint32_t*>(tensors.at(name).bytes.data());
  }
};

RawCheckpoint read_checkpoint(const std::string& dir) {
  RawCheckpoint raw;
  raw.config = Json::parse(read_file(dir + "/config.json"));
  const SafetensorsFile file(FileMap::open_user_file(dir + "/model.safetensors"));
  for (const TensorView& t : file.tensors()) {
    raw.tensors[t.name] = {t.name, to_string(t.dtype), t.shape, bytes_of(t.data, t.bytes)};
  }
  return raw;
}

/// By the format's description, a nibble at a time.
Int4Matrix decoded(const RawCheckpoint& raw, const std::string& module, bool awq, int64_t group) {
  const TestTensor& codes = raw.tensors.at(module + ".qweight");
  const uint32_t* q = raw.words(module + ".qweight");
  const uint32_t* z = raw.words(module + ".qzeros");
  constexpr int kAwqShift[] = {0, 16, 4, 20, 8, 24, 12, 28};  // of columns 0 to 7
  Int4Matrix m;
  m.n = awq ? codes.shape[1] * 8 : codes.shape[1];
  m.k = awq ? codes.shape[0] : codes.shape[0] * 8;
  m.group = group < 0 ? m.k : group;
  const std::string& scales = raw.tensors.at(module + ".scales").bytes;
  for (int64_t n = 0; n < m.n; ++n) {
    for (int64_t k = 0; k < m.k; ++k) {
      const uint32_t word = awq ? q[k * (m.n / 8) + n / 8] : q[k / 8 * m.n + n];
      const int shift = awq ? kAwqShift[n % 8] : static_cast<int>(4 * (k % 8));
      m.code.push_back(static_cast<uint8_t>(word >> shift & 15));
    }
    for (int64_t g = 0; g < m.groups(); ++g) {
      const uint32_t word = z[g * (m.n / 8) + n / 8];
      const int shift = awq ? kAwqShift[n % 8] : static_cast<int>(4 * (n % 8));
      m.zero.push_back(static_cast<uint8_t>((word >> shift & 15) + (awq ? 0 : 1)));
      uint16_t scale;
      std::memcpy(&scale, scales.data() + 2 * (g * m.n + n), 2);
      m.scale.push_back(scale);
    }
  }
  for (int64_t k = 0; k < m.k; ++k) {
    m.g_idx.push_back(awq ? static_cast<int32_t>(k / m.group)
                          : static_cast<int32_t>(raw.words(module + ".g_idx")[k]));
  }
  return m;
}

/// A positive normal f16 number.
float from_f16(uint16_t bits) {
  const int exponent = bits >> 10;
  if (exponent == 0 || exponent >= 31) throw std::logic_error("no positive normal f16 number");
  return std::ldexp(1.0f + static_cast<float>(bits & 1023) / 1024.0f, exponent - 15);
}

/// Groups of columns cut into smaller ones.
Int4Matrix regrouped(const Int4Matrix& m, int64_t group) {
  if (m.group % group != 0) throw std::logic_error("the groups cannot be cut like this");
  Int4Matrix out = m;
  out.group = group;
  out.zero.clear();
  out.scale.clear();
  for (int64_t n = 0; n < m.n; ++n) {
    for (int64_t g = 0; g < out.groups(); ++g) {
      const auto from = static_cast<size_t>(n * m.groups() + g * group / m.group);
      out.zero.push_back(m.zero[from]);
      out.scale.push_back(m.scale[from]);
    }
  }
  for (int64_t k = 0; k < m.k; ++k) {
    if (m.g_idx[static_cast<size_t>(k)] != k / m.group) {
      throw std::logic_error("groups in another order cannot be cut");
    }
    out.g_idx[static_cast<size_t>(k)] = static_cast<int32_t>(k / group);
  }
  return out;
}

}  // namespace

std::vector<float> Int4Matrix::values() const {
  std::vector<float> out;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const auto at = static_cast<size_t>(r * groups() + g_idx[static_cast<size_t>(c)]);
      const int number = code[static_cast<size_t>(r * k + c)] - zero[at];
      out.push_back(static_cast<float>(number) * from_f16(scale[at]));
    }
  }
  return out;
}

const char* name_of(Int4File file) {
  constexpr const char* kNames[] = {"gptq", "gptq_v2", "awq", "compressed_tensors"};
  return kNames[static_cast<int>(file)];
}

std::vector<TestTensor> int4_tensors(const std::string& module, const Int4Matrix& m,
                                     const Int4Style& style) {
  const Int4Storage storage = storage_of(style.file);
  const bool ct = style.file == Int4File::kCompressedTensors;
  std::vector<TestTensor> out;
  out.push_back(words_tensor(module + (ct ? ".weight_packed" : ".qweight"),
                             quern::test::int4_code_words(storage, m.code, m.n, m.k)));
  out.push_back(scale_tensor(module + (ct ? ".weight_scale" : ".scales"), m, ct));
  if (!ct || !style.symmetric) {
    out.push_back(words_tensor(
        module + (ct ? ".weight_zero_point" : ".qzeros"),
        quern::test::int4_zero_words(storage, stored_zeros(m, style.file), m.n, m.groups())));
  }
  const bool gptq = storage == Int4Storage::kGptq;
  if (gptq || (ct && style.act_order)) {
    out.push_back({module + (ct ? ".weight_g_idx" : ".g_idx"),
                   "I32",
                   {m.k},
                   bytes_of(m.g_idx.data(), m.g_idx.size() * 4)});
  }
  if (ct) {
    const int64_t shape[] = {m.n, m.k};
    out.push_back({module + ".weight_shape", "I64", {2}, bytes_of(shape, sizeof shape)});
  }
  return out;
}

Json int4_config(const Int4Style& style, const std::vector<std::string>& plain) {
  switch (style.file) {
    case Int4File::kGptq:
    case Int4File::kGptqV2: {
      Json rules = Json::object();
      for (const std::string& module : plain) {
        std::string expression = "-:";
        for (const char c : module) expression += c == '.' ? std::string("\\.") : std::string(1, c);
        rules[expression + "$"] = Json::object();
      }
      return {{"quant_method", "gptq"},
              {"bits", 4},
              {"group_size", style.group},
              {"sym", style.symmetric},
              {"desc_act", style.act_order},
              {"checkpoint_format", style.file == Int4File::kGptq ? "gptq" : "gptq_v2"},
              {"pack_dtype", "int32"},
              {"dynamic", rules}};
    }
    case Int4File::kAwq:
      return {{"quant_method", "awq"},     {"bits", 4},
              {"group_size", style.group}, {"zero_point", !style.symmetric},
              {"version", "gemm"},         {"modules_to_not_convert", plain}};
    case Int4File::kCompressedTensors:
      return {{"quant_method", "compressed-tensors"},
              {"format", "pack-quantized"},
              {"quantization_status", "compressed"},
              {"ignore", plain},
              {"config_groups",
               {{"group_0",
                 {{"targets", {"Linear"}},
                  {"input_activations", nullptr},
                  {"output_activations", nullptr},
                  {"weights",
                   {{"num_bits", 4},
                    {"type", "int"},
                    {"symmetric", style.symmetric},
                    {"strategy", style.group < 0 ? "channel" : "group"},
                    {"group_size", style.group < 0 ? Json() : Json(style.group)},
                    {"actorder", style.act_order ? Json("group") : Json()},
                    {"dynamic", false}}}}}}}};
  }
  return {};
}

TestModel tiny_int4_model(const Int4Style& style) {
  TestModel m = tiny_model();
  std::vector<std::string> plain = {"lm_head"};
  std::vector<TestTensor> out;
  for (TestTensor& t : m.tensors) {
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    const bool narrow = module.ends_with("in_proj_a") || module.ends_with("in_proj_b");
    if (narrow) plain.push_back(module);
    if (narrow || !module.ends_with("_proj") || !t.name.ends_with(".weight")) {
      const bool projection = module.find("in_proj_") != std::string::npos && !narrow;
      if (!projection) {
        out.push_back(std::move(t));
        continue;
      }
    }
    Int4Matrix w;
    w.n = t.shape[0];
    w.k = t.shape[1];
    w.group = style.group < 0 ? w.k : style.group;
    for (int64_t i = 0; i < w.n * w.k; ++i) {
      w.code.push_back(static_cast<uint8_t>(t.bytes[static_cast<size_t>(2 * i + 1)] * 5 + i) & 15);
    }
    for (int64_t i = 0; i < w.n * w.groups(); ++i) {
      const auto other = static_cast<uint8_t>(style.zero >= 0 ? style.zero : 5 + i * 7 % 7);
      w.zero.push_back(style.symmetric ? 8 : other);
      w.scale.push_back(static_cast<uint16_t>(0x2000 + i * 37 % 0x380));  // 2^-7 to 2^-6
    }
    for (int64_t k = 0; k < w.k; ++k) {
      const int64_t from = style.act_order ? k * 5 % w.k : k;
      w.g_idx.push_back(static_cast<int32_t>(from / w.group));
    }
    if (style.numbers) {
      const std::vector<float> values = w.values();
      out.push_back({t.name, "F32", t.shape, bytes_of(values.data(), values.size() * 4)});
      continue;
    }
    for (TestTensor& part : int4_tensors(module, w, style)) out.push_back(std::move(part));
  }
  m.tensors = std::move(out);
  if (!style.numbers) m.config["quantization_config"] = int4_config(style, plain);
  return m;
}

TestModel reencoded(const std::string& dir, Int4File file, int64_t group) {
  RawCheckpoint raw = read_checkpoint(dir);
  const Json quant = raw.config.at("quantization_config");
  const bool awq = quant.at("quant_method") == "awq";
  Int4Style style;
  style.file = file;
  const int64_t source_group = quant.at("group_size").get<int64_t>();
  style.group = group != 0 ? group : source_group;
  style.symmetric = awq ? !quant.value("zero_point", true) : quant.value("sym", true);
  style.act_order = !awq && quant.value("desc_act", false);
  TestModel m;
  m.config = raw.config;
  std::vector<std::string> plain;
  for (const auto& [name, tensor] : raw.tensors) {
    const std::string module = name.substr(0, name.rfind('.'));
    const bool projection = module.find("_proj") != std::string::npos || module == "lm_head";
    if (projection && name.ends_with(".weight")) plain.push_back(module);
    if (name.ends_with(".qweight")) {
      Int4Matrix matrix = decoded(raw, module, awq, source_group);
      if (group != 0) matrix = regrouped(matrix, group);
      for (TestTensor& t : int4_tensors(module, matrix, style)) m.tensors.push_back(std::move(t));
    } else if (!raw.tensors.contains(module + ".qweight")) {
      m.tensors.push_back(tensor);
    }
  }
  m.config["quantization_config"] = int4_config(style, plain);
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

std::vector<float> logits_of(const std::string& path, const Mode& run) {
  CommonOptions options;
  options.model = path;
  options.backend = run.backend;
  options.act = run.act;
  options.isa = run.isa;
  options.kv_cache = run.kv_cache;
  options.threads = 2;
  Session session(options);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) {
    ids.push_back((i * 37 + 11) % static_cast<int32_t>(session.config().vocab_size));
  }
  ModelCache cache = session.model().make_cache();
  Tensor logits;
  session.model().forward(ids, cache, {}, logits);
  return std::vector<float>(logits.row<float>(0),
                            logits.row<float>(0) + logits.rows() * logits.cols());
}

}  // namespace quern::smoke::test
