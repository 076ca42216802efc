#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/dtype.h"
#include "quern/export.h"
#include "quern/int4_weights.h"
#include "quern/status.h"

namespace quern {
inline namespace v0 {

/// How packed bytes are laid out. The value names a byte format for ever: a change of layout is a
/// new value. "n16" is a panel of 16 output columns that runs through all of K, so that a decode
/// thread which takes four panels walks four sequential streams. A line is 64 bytes of a panel; K
/// is padded to 16 lines, a whole AMX tile, so that avx512 and amx kernels read the same bytes and
/// neither reads beyond a panel.
enum class WeightLayout : uint32_t {
  kNone = 0,
  /// panel p, k-pair i, column c, j in {0, 1}: bf16 W[16 p + c][2 i + j]; zero beyond N and K.
  kBf16Vnni2N16 = 0x0111,
  /// panel p, k-quad i, column c, j in 0..3: u8 code W[16 p + c][4 i + j] + 128; 128 beyond N and
  /// K. Then one f32 scale for each of the padded columns, zero beyond N.
  kU8Vnni4N16 = 0x0211,
  /// As the two above with panels alternating: gate columns 16 p.., up columns 16 p...
  kBf16Vnni2N16GateUp = 0x0112,
  kU8Vnni4N16GateUp = 0x0212,
  /// 4-bit codes, 8 depths of 16 columns a line. K is cut into groups whose columns share a scale;
  /// each takes `padded` depths, the same number for all (ops/group_layout.h), so that depth
  /// d = g * padded + r is column r of group g. Panel p, line i, 32-bit word c, nibble j: the code
  /// of column 16 p + c at depth 8 i + (0, 4, 2, 6, 1, 5, 3, 7)[j]; 0 where a group has no such
  /// column and beyond N. No padding to tiles: a panel is its groups. Then, each from a multiple of
  /// 64 bytes on: scales [panel][group][16] of the checkpoint's type; zeros [panel][group][16],
  /// u8 or f32, none where symmetric; with act_order the column of K, s32, that stands at each
  /// depth, -1 for padding. Scales and zeros are 0 beyond N.
  kU4Vnni8N16 = 0x0411,
  kU4Vnni8N16GateUp = 0x0412,
  /// 8-bit floating-point codes, groups of K as above, 4 depths of 16 columns a line. Panel p, line
  /// i, byte 16 q + 8 h + 2 c + j (q, c in 0..3, h, j in {0, 1}): the code of column 16 p + 4 q + c
  /// at depth 4 i + 2 h + j; 0 where a group has no such column and beyond N. Then, from a multiple
  /// of 64 bytes on, f32 scales [panel][group][16], 0 beyond N. "Batch", of bmm: without groups, K
  /// padded to whole tiles, one f32 scale for each of the padded columns.
  kE4M3Vnni2N16 = 0x0511,
  kE4M3Vnni2N16GateUp = 0x0512,
  kE4M3Vnni2N16Batch = 0x0513,
  kE5M2Vnni2N16 = 0x0521,
  kE5M2Vnni2N16GateUp = 0x0522,
  /// MXFP4: e2m1 codes, groups of K and lines as those of u4. Then, from a multiple of 64 bytes on,
  /// scales [panel][group][16] as bf16, which holds every power of two that e8m0 has; 0 beyond N.
  kE2M1Vnni8N16 = 0x0611,
  kE2M1Vnni8N16GateUp = 0x0612,
  /// NVFP4: e2m1 codes, lines as those of u4. K is padded to 4 lines, which decode to a whole AMX
  /// tile. The sign of a block scale is in its codes; 0 where the scale is 0, beyond N and beyond
  /// K. Then one f32 for each of the padded columns, the scale of its matrix, zero beyond N. Then,
  /// from a multiple of 64 bytes on, block scales [panel][16 depths][16]: a byte t stands for the
  /// bf16 number whose bits are those of 512 less 16 t; 0 where there is none.
  kNvfp4N16 = 0x0711,
  kNvfp4N16GateUp = 0x0712,
};

/// "bf16.vnni2.n16.v2", "u8.vnni4.n16.v2", "u4.vnni8.n16.v1", "e4m3.vnni2.n16.v1",
/// "e5m2.vnni2.n16.v1", "e2m1.vnni8.n16.v1" and "nvfp4.n16.v1"; where panels alternate with
/// ".gateup" before the version ("nvfp4.n16.gateup.v1"); "e4m3.vnni2.n16.batch.v1" of bmm; "none".
/// "unknown" for a value that is no layout.
QUERN_API const char* to_string(WeightLayout layout) noexcept;

struct MapWeightsOptions {
  /// Reads the whole file once and compares its checksum. Without it a map is two reads of a page,
  /// whatever the size (and of the columns that act_order names, 4 bytes each), and a flipped bit
  /// among the weights is a flipped bit among the weights.
  bool verify = false;
};

/// Immutable packed weights. Copies share the bytes; safe to use from any number of threads.
class QUERN_API PackedWeights {
 public:
  PackedWeights() = default;

  /// Writes a file that map() takes (format: ops/README.md, "Packed weights on disk"). It is
  /// written under another name in the same directory, synchronised and renamed, so that nobody
  /// ever sees half of it; what `path` named before stays whole for whoever has it mapped.
  Status save(const std::string& path) const;
  /// Weights that lie in the file's own pages: nothing is copied, and processes that map the same
  /// file share the memory. Every field of the header is checked first; a file that is not exactly
  /// what save() wrote gives kBadFile. The mapping lives as long as any copy of the result.
  ///
  /// The file must not shrink while it is mapped: the kernel answers an access to a lost page with
  /// SIGBUS, and quern installs no handler. map() itself never touches the mapped pages (it reads
  /// the file, so a file cut meanwhile gives kBadFile), and save() never changes a file in place.
  static Result<PackedWeights> map(const std::string& path, const MapWeightsOptions& options = {});

  WeightLayout layout() const noexcept { return layout_; }
  /// Output columns of C that these weights produce (of each part, for gate/up layouts) and depth.
  int64_t n() const noexcept { return n_; }
  int64_t k() const noexcept { return k_; }
  /// Matrices of that shape, panels of the first, then of the second, ...; then all their scales.
  /// 1 but for those of bmm.
  int64_t batch() const noexcept { return batch_; }
  /// Everything, scales included.
  size_t bytes() const noexcept { return bytes_; }
  /// 64-byte aligned.
  const std::byte* data() const noexcept { return data_.get(); }
  /// No bytes: default-constructed or moved from.
  bool empty() const noexcept { return data_ == nullptr; }

  /// Bytes from one panel of 16 columns to the next.
  int64_t panel_bytes() const noexcept { return panel_bytes_; }
  /// One f32 a padded column. Null where the layout has none.
  const float* scales() const noexcept;
  /// Of the nvfp4 layouts. Null for the others.
  const uint8_t* block_scales() const noexcept;

  /// Of layouts with groups of K (int4, fp8, MXFP4); 0 for the others. Columns of K that share a
  /// scale, at most k, and how many such groups there are as packed: act_order cuts one with more
  /// columns into several.
  int64_t group() const noexcept { return group_; }
  int64_t groups() const noexcept { return groups_; }
  DType scale_dtype() const noexcept { return scale_dtype_; }
  Int4Zeros zeros() const noexcept { return zeros_; }
  bool act_order() const noexcept { return act_order_; }
  /// The sections that those layouts describe. Null where the weights have no such section.
  const void* group_scales() const noexcept;
  const void* group_zeros() const noexcept;
  const int32_t* order() const noexcept;

 private:
  friend class PackedWeightsBuilder;
  WeightLayout layout_ = WeightLayout::kNone;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t batch_ = 1;
  int64_t panel_bytes_ = 0;
  size_t bytes_ = 0;
  size_t scale_offset_ = 0;
  size_t zero_offset_ = 0;
  size_t order_offset_ = 0;
  size_t block_offset_ = 0;
  int64_t group_ = 0;
  int64_t groups_ = 0;
  DType scale_dtype_ = DType::kF32;
  Int4Zeros zeros_ = Int4Zeros::kSymmetric;
  bool act_order_ = false;
  std::shared_ptr<const std::byte> data_;
  /// What map() checked: the file may change afterwards, and A is read where this says.
  std::shared_ptr<const int32_t> checked_order_;
};

}  // namespace v0
}  // namespace quern
