#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "quern/dtype.h"
#include "quern/int4_weights.h"
#include "quern/packed_weights.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// An AMX tile of weights.
constexpr int64_t kLinesOfATile = 16;

/// How many parts (matrices) a layout interleaves, and the bytes of one 64-byte line's depth.
struct LayoutTraits {
  DType dtype = DType::kBF16;          ///< what the panels hold
  int parts = 1;                       ///< 2: gate and up panels alternate
  int k_step = 2;                      ///< depths in one 64-byte line of a panel
  bool scales = false;                 ///< one f32 a padded packed column behind the panels
  bool grouped = false;                ///< WeightGroups say how K lies and which sections follow
  int64_t tile_lines = kLinesOfATile;  ///< panels are a multiple of so many lines deep
  bool blocks = false;                 ///< then a byte for each column and kNvfp4Block depths
};
/// Columns of K that share a scale of NVFP4 and of MXFP4.
constexpr int64_t kNvfp4Block = 16;
constexpr int64_t kMxfp4Block = 32;

LayoutTraits layout_traits(WeightLayout layout) noexcept;

constexpr int64_t kPanelColumns = 16;
constexpr size_t kLineBytes = 64;

/// What weights in groups of K have beside n and k.
struct WeightGroups {
  int64_t group = 0;   ///< GroupLayout::group: at most k
  int64_t groups = 0;  ///< GroupLayout::groups: as packed
  DType scale = DType::kF32;
  Int4Zeros zeros = Int4Zeros::kSymmetric;
  bool act_order = false;
};
/// Of weights in groups or blocks. W4A8 needs it: the sums of a row must fit 32 bits in every order
/// of K, 2^20 * 127 * 16 < 2^31.
constexpr int64_t kMaxGroupedK = int64_t{1} << 20;

/// What is packed: a matrix, or a batch of them.
struct WeightShape {
  WeightLayout layout = WeightLayout::kNone;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  WeightGroups grouped;  ///< of layouts whose traits say so
};

/// Where everything lies. A function of the shape, so a file that disagrees is wrong.
struct WeightGeometry {
  int64_t matrix_panels = 0;  ///< of one matrix, all parts together
  int64_t panels = 0;         ///< of the batch
  int64_t panel_bytes = 0;
  int64_t scale_offset = 0;
  int64_t zero_offset = 0;   ///< 0 where the shape has no zeros
  int64_t order_offset = 0;  ///< 0 where it has no order
  int64_t block_offset = 0;  ///< 0 where the layout has no block scales
  int64_t blocks = 0;        ///< of a column
  int64_t bytes = 0;         ///< a multiple of kLineBytes
};
/// For n, k, batch >= 0 and groups as GroupLayout has them. kTooLarge beyond 2^48 bytes, and for
/// k beyond kMaxGroupedK where there are groups or blocks.
Result<WeightGeometry> weight_geometry(const WeightShape& shape) noexcept;

/// The only way to make a PackedWeights: allocate, fill, seal; or over bytes that exist already.
class PackedWeightsBuilder {
 public:
  /// `bytes`: weight_geometry(shape).bytes of them in that layout, 64-byte aligned. `checked_order`
  /// stands in for the section of bytes that others may change.
  static PackedWeights over(const WeightShape& shape, const WeightGeometry& geometry,
                            std::shared_ptr<const std::byte> bytes,
                            std::shared_ptr<const int32_t> checked_order = nullptr);

  static WeightShape shape_of(const PackedWeights& weights) noexcept;

  /// 64-byte aligned memory for the layout; every byte is the caller's to write. kTooLarge or
  /// kOutOfMemory.
  static Result<PackedWeightsBuilder> allocate(const WeightShape& shape);

  std::byte* data() noexcept { return data_.get(); }
  /// The first section behind the panels.
  float* scales() noexcept {
    return reinterpret_cast<float*>(data_.get() + weights_.scale_offset_);
  }
  const WeightGeometry& geometry() const noexcept { return geometry_; }
  PackedWeights seal() &&;

 private:
  PackedWeights weights_;
  std::shared_ptr<std::byte> data_;
  WeightGeometry geometry_;
};

}  // namespace quern::inline v0
