#include "quern/packed_weights.h"

#include <utility>

#include "ops/checked.h"
#include "ops/group_layout.h"
#include "ops/packed_weights_builder.h"
#include "ops/validate.h"
#include "ops/weight_memory.h"

namespace quern::inline v0 {

const char* to_string(WeightLayout layout) noexcept {
  switch (layout) {
    case WeightLayout::kNone:
      return "none";
    case WeightLayout::kBf16Vnni2N16:
      return "bf16.vnni2.n16.v2";
    case WeightLayout::kU8Vnni4N16:
      return "u8.vnni4.n16.v2";
    case WeightLayout::kBf16Vnni2N16GateUp:
      return "bf16.vnni2.n16.gateup.v2";
    case WeightLayout::kU8Vnni4N16GateUp:
      return "u8.vnni4.n16.gateup.v2";
    case WeightLayout::kU4Vnni8N16:
      return "u4.vnni8.n16.v1";
    case WeightLayout::kU4Vnni8N16GateUp:
      return "u4.vnni8.n16.gateup.v1";
    case WeightLayout::kE4M3Vnni2N16:
      return "e4m3.vnni2.n16.v1";
    case WeightLayout::kE4M3Vnni2N16GateUp:
      return "e4m3.vnni2.n16.gateup.v1";
    case WeightLayout::kE4M3Vnni2N16Batch:
      return "e4m3.vnni2.n16.batch.v1";
    case WeightLayout::kE5M2Vnni2N16:
      return "e5m2.vnni2.n16.v1";
    case WeightLayout::kE5M2Vnni2N16GateUp:
      return "e5m2.vnni2.n16.gateup.v1";
    case WeightLayout::kE2M1Vnni8N16:
      return "e2m1.vnni8.n16.v1";
    case WeightLayout::kE2M1Vnni8N16GateUp:
      return "e2m1.vnni8.n16.gateup.v1";
    case WeightLayout::kNvfp4N16:
      return "nvfp4.n16.v1";
    case WeightLayout::kNvfp4N16GateUp:
      return "nvfp4.n16.gateup.v1";
  }
  return "unknown";
}

LayoutTraits layout_traits(WeightLayout layout) noexcept {
  switch (layout) {
    case WeightLayout::kU8Vnni4N16:
      return {DType::kU8, 1, 4, true};
    case WeightLayout::kU8Vnni4N16GateUp:
      return {DType::kU8, 2, 4, true};
    case WeightLayout::kU4Vnni8N16:
      return {DType::kU4, 1, 8, false, true};
    case WeightLayout::kU4Vnni8N16GateUp:
      return {DType::kU4, 2, 8, false, true};
    case WeightLayout::kE4M3Vnni2N16:
      return {DType::kE4M3, 1, 4, false, true};
    case WeightLayout::kE4M3Vnni2N16GateUp:
      return {DType::kE4M3, 2, 4, false, true};
    case WeightLayout::kE4M3Vnni2N16Batch:
      return {DType::kE4M3, 1, 4, true};
    case WeightLayout::kE5M2Vnni2N16:
      return {DType::kE5M2, 1, 4, false, true};
    case WeightLayout::kE5M2Vnni2N16GateUp:
      return {DType::kE5M2, 2, 4, false, true};
    case WeightLayout::kE2M1Vnni8N16:
      return {DType::kE2M1, 1, 8, false, true};
    case WeightLayout::kE2M1Vnni8N16GateUp:
      return {DType::kE2M1, 2, 8, false, true};
    case WeightLayout::kNvfp4N16:
      return {DType::kE2M1, 1, 8, true, false, 4, true};
    case WeightLayout::kNvfp4N16GateUp:
      return {DType::kE2M1, 2, 8, true, false, 4, true};
    case WeightLayout::kBf16Vnni2N16GateUp:
      return {DType::kBF16, 2, 2, false};
    case WeightLayout::kBf16Vnni2N16:
    case WeightLayout::kNone:
      break;
  }
  return {DType::kBF16, 1, 2, false};
}

const float* PackedWeights::scales() const noexcept {
  if (!layout_traits(layout_).scales || data_ == nullptr) return nullptr;
  return reinterpret_cast<const float*>(data_.get() + scale_offset_);
}

const uint8_t* PackedWeights::block_scales() const noexcept {
  if (!layout_traits(layout_).blocks || data_ == nullptr) return nullptr;
  return reinterpret_cast<const uint8_t*>(data_.get() + block_offset_);
}

const void* PackedWeights::group_scales() const noexcept {
  if (!layout_traits(layout_).grouped || data_ == nullptr) return nullptr;
  return data_.get() + scale_offset_;
}

const void* PackedWeights::group_zeros() const noexcept {
  if (zeros_ == Int4Zeros::kSymmetric || data_ == nullptr) return nullptr;
  return data_.get() + zero_offset_;
}

const int32_t* PackedWeights::order() const noexcept {
  if (!act_order_ || data_ == nullptr) return nullptr;
  if (checked_order_ != nullptr) return checked_order_.get();
  return reinterpret_cast<const int32_t*>(data_.get() + order_offset_);
}

namespace {

constexpr auto kLine = static_cast<int64_t>(kLineBytes);

CheckedSize panel_bytes_of(const WeightShape& shape, const LayoutTraits& traits,
                           const GroupLayout& groups) noexcept {
  if (traits.grouped) return CheckedSize(groups.depth() / traits.k_step) * kLine;
  const int64_t tile = traits.tile_lines;
  return CheckedSize(ceil_div(shape.k, traits.k_step * tile)) * tile * kLine;
}

int64_t zero_bytes(Int4Zeros zeros) noexcept {
  switch (zeros) {
    case Int4Zeros::kSymmetric:
      return 0;
    case Int4Zeros::kInteger:
      return 1;
    case Int4Zeros::kF32:
      return 4;
  }
  return 0;
}

}  // namespace

Result<WeightGeometry> weight_geometry(const WeightShape& shape) noexcept {
  const LayoutTraits traits = layout_traits(shape.layout);
  const WeightGroups& grouped = shape.grouped;
  if ((traits.grouped || traits.blocks) && shape.k > kMaxGroupedK) {
    return Status(StatusCode::kTooLarge, "k ({0}) of weights in groups is at most {1}", shape.k,
                  kMaxGroupedK);
  }
  const GroupLayout groups =
      traits.grouped ? GroupLayout(shape.k, grouped.group, grouped.groups) : GroupLayout();
  const CheckedSize matrix_panels = CheckedSize(ceil_div(shape.n, kPanelColumns)) * traits.parts;
  const CheckedSize panels = matrix_panels * shape.batch;
  const CheckedSize panel_bytes = panel_bytes_of(shape, traits, groups);
  const CheckedSize scale_offset = panels * panel_bytes;
  CheckedSize end = scale_offset;
  WeightGeometry geometry;
  // Begins a section where the last one ended.
  const auto section = [&](CheckedSize bytes) noexcept {
    const int64_t at = end.value();
    end = (end + bytes).round_up(kLine);
    return at;
  };
  if (traits.scales) section(panels * kPanelColumns * static_cast<int64_t>(sizeof(float)));
  if (traits.blocks) {
    geometry.blocks = panel_bytes.value() / kLine * traits.k_step / kNvfp4Block;
    geometry.block_offset = section(panels * geometry.blocks * kPanelColumns);
  }
  if (traits.grouped) {
    const CheckedSize cells = panels * groups.groups * kPanelColumns;
    section(cells * static_cast<int64_t>(size_of(grouped.scale)));
    if (grouped.zeros != Int4Zeros::kSymmetric) {
      geometry.zero_offset = section(cells * zero_bytes(grouped.zeros));
    }
    if (grouped.act_order) {
      geometry.order_offset =
          section(CheckedSize(groups.depth()) * static_cast<int64_t>(sizeof(int32_t)));
    }
  }
  if (!end.at_most(kMaxExtent) || !panel_bytes.ok() || !matrix_panels.ok()) {
    return Status(StatusCode::kTooLarge, "packed weights of n {0}, k {1} exceed 2^48 bytes",
                  shape.n, shape.k);
  }
  geometry.matrix_panels = matrix_panels.value();
  geometry.panels = panels.value();
  geometry.panel_bytes = panel_bytes.value();
  geometry.scale_offset = scale_offset.value();
  geometry.bytes = end.value();
  return geometry;
}

PackedWeights PackedWeightsBuilder::over(const WeightShape& shape, const WeightGeometry& geometry,
                                         std::shared_ptr<const std::byte> bytes,
                                         std::shared_ptr<const int32_t> checked_order) {
  PackedWeights weights;
  weights.checked_order_ = std::move(checked_order);
  weights.layout_ = shape.layout;
  weights.n_ = shape.n;
  weights.k_ = shape.k;
  weights.batch_ = shape.batch;
  weights.panel_bytes_ = geometry.panel_bytes;
  weights.scale_offset_ = static_cast<size_t>(geometry.scale_offset);
  weights.zero_offset_ = static_cast<size_t>(geometry.zero_offset);
  weights.order_offset_ = static_cast<size_t>(geometry.order_offset);
  weights.block_offset_ = static_cast<size_t>(geometry.block_offset);
  weights.group_ = shape.grouped.group;
  weights.groups_ = shape.grouped.groups;
  weights.scale_dtype_ = shape.grouped.scale;
  weights.zeros_ = shape.grouped.zeros;
  weights.act_order_ = shape.grouped.act_order;
  weights.bytes_ = static_cast<size_t>(geometry.bytes);
  weights.data_ = std::move(bytes);
  return weights;
}

WeightShape PackedWeightsBuilder::shape_of(const PackedWeights& weights) noexcept {
  return {
      weights.layout_,
      weights.n_,
      weights.k_,
      weights.batch_,
      {weights.group_, weights.groups_, weights.scale_dtype_, weights.zeros_, weights.act_order_}};
}

Result<PackedWeightsBuilder> PackedWeightsBuilder::allocate(const WeightShape& shape) {
  const auto geometry = weight_geometry(shape);
  if (!geometry.ok()) return geometry.status();
  PackedWeightsBuilder builder;
  builder.data_ = allocate_weight_memory(static_cast<size_t>(geometry->bytes));
  if (builder.data_ == nullptr) {
    return Status(StatusCode::kOutOfMemory, "no memory for {0} bytes of packed weights",
                  geometry->bytes);
  }
  builder.geometry_ = *geometry;
  builder.weights_ = over(shape, *geometry, nullptr);
  return builder;
}

PackedWeights PackedWeightsBuilder::seal() && {
  weights_.data_ = std::move(data_);
  return std::move(weights_);
}

}  // namespace quern::inline v0
