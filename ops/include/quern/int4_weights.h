#pragma once

#include <cstdint>

#include "quern/tensor_view.h"

namespace quern {
inline namespace v0 {

/// How a checkpoint stores 4-bit codes: 32-bit words of eight nibbles, nibble j in bits 4 j .. 4 j
/// + 3. All of them mean W[n, k] = (q[n, k] - z[g, n]) * s[g, n], g the group of column k.
enum class Int4Storage : uint8_t {
  /// words [ceil(k / 8), n], nibble j of word (i, n) is depth 8 i + j of column n; scales [groups,
  /// n]; zeros [groups, ceil(n / 8)], nibble j of word (g, i) is column 8 i + j
  kGptq = 0,
  /// words [k, ceil(n / 8)], nibble j of word (k, i) is column 8 i + (0, 2, 4, 6, 1, 3, 5, 7)[j];
  /// scales [groups, n]; zeros [groups, ceil(n / 8)] with the same map of columns
  kAwq = 1,
  /// compressed-tensors "pack-quantized": words [n, ceil(k / 8)], nibble j of word (n, i) is depth
  /// 8 i + j; scales [n, groups]; zeros [ceil(n / 8), groups], nibble j of word (i, g) is column 8
  /// i + j. A stored nibble is the signed value plus 8, so that the symmetric zero is 8 here too.
  kRowMajor = 2,
};

/// What is subtracted from a code.
enum class Int4Zeros : uint8_t {
  kSymmetric = 0,  ///< 8, whatever the checkpoint carries besides
  kInteger = 1,    ///< 0..16: a nibble, plus Int4Weights::zero_offset
  kF32 = 2,        ///< any float: W = (q - z) * s is then summed as s * (sum(q a) - z * sum(a))
};

/// Weights as checkpoints store them. Every operand's shape is checked; nothing is guessed from
/// what is there.
struct Int4Weights {
  Int4Storage storage = Int4Storage::kGptq;
  MatrixView codes;  ///< kS32 words, shape by `storage`
  MatrixView scale;  ///< of the plan's scale type, shape by `storage`
  /// Only with Int4Zeros::kInteger (kS32 words, shape by `storage`) and kF32 (kF32, the shape of
  /// the scales); no data with kSymmetric.
  MatrixView zero;
  /// Added to each stored nibble of `zero`: 1 for GPTQ v1, which stores zero - 1, so that zeros are
  /// 1..16; 0 for everything else. A v1 writer that stored zero 0 wrapped it to 15, which reads as
  /// 16 here: the file cannot tell the two apart, and 16 is what the format says.
  int32_t zero_offset = 0;
  /// GPTQ's g_idx: kS32 [k], the group of each column of K, in any order and in any numbers. Only
  /// where Int4GemmDesc::act_order.
  VectorView g_idx;
};

/// Called by the thread that packs, at times, with the panels of 16 columns that are done and all
/// there are; must not call quern.
struct PackProgress {
  void (*report)(void* user, int64_t done, int64_t total) = nullptr;
  void* user = nullptr;
};

}  // namespace v0
}  // namespace quern
