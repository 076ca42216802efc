#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/quant_config.h"
#include "model_smoke/tensor.h"
#include "quern/int4_weights.h"

namespace quern::smoke {

/// How the int4 weights of a module are read, once config and content agree.
struct Int4Form {
  Int4Storage storage = Int4Storage::kGptq;
  int64_t group = -1;  ///< columns of K that share a scale; -1: all of them
  Int4Zeros zeros = Int4Zeros::kSymmetric;
  int32_t zero_offset = 0;
  DType scale = DType::kF16;
  /// Group of each column of K; empty where they lie in order, whatever the file says about that.
  std::vector<int32_t> g_idx;

  bool act_order() const noexcept { return !g_idx.empty(); }
  bool operator==(const Int4Form&) const = default;
};

/// Tensors of one or more modules that read the same input, in memory of our own.
struct HostInt4 {
  Int4Form form;
  int64_t n = 0, k = 0;
  Tensor codes, scale, zero;

  Int4Weights view() const;
  /// Columns [first, first + count) of C; `first` is a multiple of 8.
  Int4Weights columns(int64_t first, int64_t count) const;
  size_t bytes() const;
};

/// Names of a storage's tensors, behind the module's name.
struct Int4Names {
  const char* codes;
  const char* scale;
  const char* zero;
  const char* g_idx;
  const char* shape;  ///< null: there is none
};
Int4Names int4_names(Int4Storage storage) noexcept;

/// Looks, takes nothing: shapes, types, the groups of K, and for symmetric modules that stored
/// zeros do not say something else. Throws InputError.
///
/// The rule for symmetric modules (models.md 6, bug log L07, T03): the zero is 8. Stored zeros are
/// never used, but they must be absent, or be 8 everywhere as the config's version stores it (7
/// with checkpoint_format gptq, 8 with gptq_v2 and the others), or be nothing but zero bits, which
/// no writer of zeros leaves and some leave who write none. Anything else has two readings.
///
/// The rule for asymmetric gptq (v1): a stored 15 is the zero 16. Writers that wrapped a zero of 0
/// to 15 cannot be told apart.
Int4Form int4_form_of(const QuantConfig& quant, const std::string& module, int64_t n, int64_t k,
                      const Checkpoint& checkpoint);

/// "int4 gptq, group 128, zero 8, F16 scales".
std::string describe(const Int4Form& form);
/// Why modules of these two forms cannot be one matrix; empty: they can, if the first one's columns
/// of C are whole words.
std::string difference(const Int4Form& x, const Int4Form& y);

/// A module and its columns.
struct Int4Part {
  std::string name;
  int64_t n = 0;
};
/// Takes the tensors of modules of one form, stacked along N.
HostInt4 take_int4(Checkpoint& checkpoint, const std::vector<Int4Part>& parts, int64_t k,
                   const Int4Form& form, uint64_t* file_bytes);

}  // namespace quern::smoke
