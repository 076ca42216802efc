#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/model_smoke/test_model.h"

/// Model directories with int4 weights, written by an independent writer: the tiny model, and
/// checkpoints of one form in another.
namespace quern::smoke::test {

enum class Int4File { kGptq, kGptqV2, kAwq, kCompressedTensors };
const char* name_of(Int4File file);

/// The int4 weights of one module, spelled out.
struct Int4Matrix {
  int64_t n = 0, k = 0;
  int64_t group = 0;            ///< columns of K that share a scale
  std::vector<uint8_t> code;    ///< [n, k]
  std::vector<uint8_t> zero;    ///< [n, groups]: the zero itself
  std::vector<uint16_t> scale;  ///< [n, groups], f16
  std::vector<int32_t> g_idx;   ///< [k]

  int64_t groups() const { return (k + group - 1) / group; }
  /// (code - zero) * scale by the format's description, one f32 product each.
  std::vector<float> values() const;
};

struct Int4Style {
  Int4File file = Int4File::kGptq;
  int64_t group = 8;
  bool symmetric = true;
  bool act_order = false;
  bool numbers = false;  ///< the same numbers as F32 weights
  int zero = -1;         ///< of every group where not symmetric; -1: 5 to 11
};

/// The module's tensors in that form; `style.group` is the matrix's.
std::vector<TestTensor> int4_tensors(const std::string& module, const Int4Matrix& matrix,
                                     const Int4Style& style);
/// The quantization_config of a model whose other modules are `plain`.
Json int4_config(const Int4Style& style, const std::vector<std::string>& plain);

/// tiny_model() with int4 projections, lm_head and the two narrow projections plain.
TestModel tiny_int4_model(const Int4Style& style = {});

/// Its module that tests bend.
inline constexpr char kUp[] = "model.layers.0.mlp.up_proj";

/// How a model is run; names as on the command line.
struct Mode {
  std::string backend;
  std::string act;
  std::string isa = "auto";
  std::string kv_cache = "auto";
};

/// Of 40 fixed tokens.
std::vector<float> logits_of(const std::string& path, const Mode& run);

/// The checkpoint in `dir` (GPTQ v1 or AWQ) with its int4 modules written in another form.
/// Tokenizer and generation config come along where there are some. `group`: finer groups, each
/// with the scale and zero of the one that it was part of; 0: as they are.
TestModel reencoded(const std::string& dir, Int4File file, int64_t group = 0);

}  // namespace quern::smoke::test
