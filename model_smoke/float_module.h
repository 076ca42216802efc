#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/module_ref.h"
#include "model_smoke/quant_config.h"
#include "model_smoke/tensor.h"
#include "quern/fp4_weights.h"
#include "quern/fp8_gemm.h"

namespace quern::smoke {

/// Names of a format's tensors, behind the module's name.
struct FloatNames {
  const char* codes;
  const char* scale = nullptr;            ///< null: a module that the config does not quantize
  const char* global = nullptr;           ///< null: there is none
  const char* pre_quant_scale = nullptr;  ///< null: there must be none; else there may be one
};
/// The scales of FP8 blocks are `weight_scale_inv` or `weight_scale`, which mean the same: they
/// multiply (bug log L06). Both at once is an InputError.
FloatNames float_names(const QuantConfig& quant, std::string_view module,
                       const Checkpoint& checkpoint);

/// How the e4m3 weights of a module are read, once config and content agree. Blocks as Fp8GemmDesc
/// has them: -1 is all rows or columns.
struct Fp8Form {
  int64_t block_n = -1;
  int64_t block_k = -1;
  DType scale = DType::kF32;
  bool operator==(const Fp8Form&) const = default;
};
/// The scale of the whole matrix, as the file means it.
struct Fp4Form {
  float global = 1;
  Fp4Global global_is = Fp4Global::kMultiplier;
  /// AWQ: what the columns of the input are multiplied with before the matrix; empty: nothing.
  std::vector<float> pre_quant_scale;
  bool operator==(const Fp4Form&) const = default;
};

/// Tensors of one or more modules that read the same input, in memory of our own.
struct HostFp8 {
  Fp8Form form;
  int64_t n = 0, k = 0;
  Tensor codes, scale;
  Tensor row_scale;  ///< the scales of each row, so that rows can be taken apart anywhere

  Fp8Weights view() const { return {.codes = codes.view(), .scale = scale.view()}; }
  /// Rows [first, first + count), each with scales of its own (block_n 1).
  Fp8Weights rows(int64_t first, int64_t count) const;
  size_t bytes() const;
};
struct HostFp4 {
  Fp4Form form;
  int64_t n = 0, k = 0;
  Tensor codes, scale;

  Fp4Weights view() const { return rows(0, n); }
  Fp4Weights rows(int64_t first, int64_t count) const;
  size_t bytes() const;
};

/// Look, take nothing: shapes, types, and that the scale of the matrix is one. Throw InputError.
Fp8Form fp8_form_of(const QuantConfig& quant, const std::string& module, int64_t n, int64_t k,
                    const Checkpoint& checkpoint);
Fp4Form fp4_form_of(const QuantConfig& quant, const std::string& module, int64_t n, int64_t k,
                    const Checkpoint& checkpoint);

/// "fp8 e4m3, 128 x 128 blocks, f32 scales"; "nvfp4, global scale 0.0013 multiplies".
std::string describe(const Fp8Form& form);
std::string describe(const Fp4Form& form);
/// Why a module of the second form cannot stand below `n` rows of the first; empty: it can.
std::string apart_because(const Fp8Form& before, int64_t n, const Fp8Form& next);
std::string apart_because(const Fp4Form& before, const Fp4Form& next);

/// Take the tensors of modules that can be one matrix, stacked along N. NaN codes and scales throw
/// InputError. Scales of activations are left out, and that is said.
HostFp8 take_fp8(Checkpoint& checkpoint, const QuantConfig& quant,
                 const std::vector<ModuleRef>& parts, int64_t k, const Fp8Form& form,
                 uint64_t* file_bytes);
HostFp4 take_fp4(Checkpoint& checkpoint, const QuantConfig& quant,
                 const std::vector<ModuleRef>& parts, int64_t k, const Fp4Form& form,
                 uint64_t* file_bytes);

}  // namespace quern::smoke
