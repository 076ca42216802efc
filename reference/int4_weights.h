#pragma once

#include <cstdint>
#include <vector>

#include "quern/int4_gemm.h"
#include "quern/status.h"

namespace quern::reference {

/// Weights of any storage, spelled out: W[n, k] = (code - zero[n, g]) * scale[n, g], g the group of
/// column k.
struct Int4Values {
  int64_t n = 0;
  int64_t k = 0;
  int64_t groups = 0;             ///< as stored
  std::vector<uint8_t> code;      ///< [n, k], 0..15
  std::vector<float> zero;        ///< [n, groups]
  std::vector<float> scale;       ///< [n, groups], exact: f16 and bf16 are f32 too
  std::vector<int32_t> group_of;  ///< [k]

  float zero_at(int64_t row, int64_t group) const {
    return zero[static_cast<size_t>(row * groups + group)];
  }
  float scale_at(int64_t row, int64_t group) const {
    return scale[static_cast<size_t>(row * groups + group)];
  }
  /// Exact in f32 where the zero is an integer and the scale is f16 or bf16 (5 bits times 11);
  /// rounded by each of the two operations otherwise.
  float weight(int64_t row, int64_t col) const;
};

/// Columns of K whose products are added up before their scale acts. Ascending, all of one stored
/// group; at most `desc.group` of them, so that g_idx may cut a stored group into several.
struct Int4Run {
  int64_t group = 0;  ///< as stored: which scale and zero
  std::vector<int64_t> columns;
};

/// The shapes of `storage`, types, and the range of g_idx; zeros are not looked at.
Status check_int4_weights(const Int4Weights& w, const Int4GemmDesc& desc);

/// `w` has passed the check.
Int4Values int4_values(const Int4Weights& w, const Int4GemmDesc& desc);

/// In the order in which they are summed: groups ascending, each in pieces of `desc.group` columns.
std::vector<Int4Run> int4_runs(const Int4Values& values, const Int4GemmDesc& desc);

}  // namespace quern::reference
