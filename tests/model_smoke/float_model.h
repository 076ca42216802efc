#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/model_smoke/test_model.h"

namespace quern::smoke::test {

/// The forms of FP8 and NVFP4 checkpoints, written by the descriptions of models.md section 6.
enum class FloatFile : uint8_t {
  kPlain,          ///< the same numbers as F32 weights
  kPlainBf16,      ///< as BF16, where that holds them
  kFp8Block,       ///< quant_method fp8 with weight_block_size
  kFp8,            ///< quant_method fp8, a scale for each tensor or channel
  kCtFp8,          ///< compressed-tensors float-quantized
  kModelOptFp8,    ///< config.json
  kModelOptNvfp4,  ///< config.json
  kNestedNvfp4,    ///< hf_quant_config.json alone
  kBothNvfp4,      ///< both files
  kCtNvfp4,        ///< compressed-tensors nvfp4-pack-quantized
};
const char* name_of(FloatFile file);
bool is_nvfp4(FloatFile file);

/// Weights of a module, spelled out.
struct FloatMatrix {
  int64_t n = 0, k = 0;
  std::vector<uint8_t> code;  ///< [n, k]: e4m3, or e2m1 where there is a block_scale
  /// FP8: blocks of `scale`; -1: all.
  int64_t block_n = -1, block_k = -1;
  std::vector<float> scale;
  /// NVFP4: e4m3 [n, ceil(k / 16)], and the multiplier of the matrix.
  std::vector<uint8_t> block_scale;
  float global = 1;

  int64_t scale_rows() const;
  int64_t scale_cols() const;
  /// By the format's description, an element at a time: f32 of the product with one rounding.
  std::vector<float> values() const;
};

/// The e4m3 and e2m1 numbers, from the formats' definitions.
double e4m3_value(uint8_t code);
double e2m1_value(uint8_t code);
/// The e4m3 code nearest to x, the even one of two, by looking at all of them; never above 448.
uint8_t nearest_e4m3(float x);

std::vector<TestTensor> float_tensors(const std::string& module, const FloatMatrix& matrix,
                                      FloatFile file);
/// Puts the quantization config of the form into the model; `plain` modules are listed.
void set_float_config(TestModel& model, FloatFile file, const FloatMatrix& any,
                      const std::vector<std::string>& plain);
/// The object that holds the list of excluded modules, and its key.
Json read_nested(const TestModel& model);
void write_nested(TestModel& model, const Json& nested);

using BendMatrix = std::function<void(const std::string& module, FloatMatrix& matrix)>;

/// tiny_model() with projections in that form, lm_head and (unless `uniform`) the two narrow
/// projections plain. FP8 scales are those of blocks of `block_n` x `block_k`.
struct TinyFloat {
  FloatFile file = FloatFile::kFp8Block;
  int64_t block_n = 8, block_k = 8;
  bool uniform = false;
  BendMatrix bend = {};
  /// Of each module, where they differ; the config is that of `file`, to be bent.
  std::function<FloatFile(const std::string& module)> form = {};
  bool numbers = false;  ///< the same numbers as F32 weights, whatever the forms
};
TestModel tiny_float_model(const TinyFloat& style);

/// The checkpoint in `dir` (fp8 with blocks, or ModelOpt NVFP4) in another form of the same kind,
/// its matrices bent first. All files that describe its tokenizer come along.
TestModel reencoded_float(const std::string& dir, FloatFile file, const BendMatrix& bend = {});

/// Makes 1 / (1 / global) the global scale again, so that a divisor can say it exactly.
void invertible_global(const std::string& module, FloatMatrix& matrix);

/// NVFP4_AWQ's factors for the columns of a module's input, BF16.
TestTensor pre_quant_scale(const std::string& module, const std::vector<float>& factors);

/// A bf16 model whose config is one of a method that leaves every module out, and has this
/// kv_cache_scheme; null: none.
TestModel tiny_kv_model(const Json& kv);

/// Adds the scales of an FP8 cache to layer 1 of a tiny model, as F32 scalars.
void add_kv_scales(TestModel& model, float k, float v);

}  // namespace quern::smoke::test
