#include "quern/packed_weights.h"

#include <utility>

#include "ops/checked.h"
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
  }
  return "unknown";
}

LayoutTraits layout_traits(WeightLayout layout) noexcept {
  switch (layout) {
    case WeightLayout::kU8Vnni4N16:
      return {DType::kU8, 1, 4, true};
    case WeightLayout::kU8Vnni4N16GateUp:
      return {DType::kU8, 2, 4, true};
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

Result<WeightGeometry> weight_geometry(const WeightShape& shape) noexcept {
  const LayoutTraits traits = layout_traits(shape.layout);
  const CheckedSize matrix_panels = CheckedSize(ceil_div(shape.n, kPanelColumns)) * traits.parts;
  const CheckedSize panels = matrix_panels * shape.batch;
  const CheckedSize panel_bytes = CheckedSize(ceil_div(shape.k, traits.k_step * kLinesOfATile)) *
                                  kLinesOfATile * static_cast<int64_t>(kLineBytes);
  const CheckedSize scale_offset = panels * panel_bytes;
  const CheckedSize scale_bytes =
      traits.scales ? panels * kPanelColumns * static_cast<int64_t>(sizeof(float)) : CheckedSize(0);
  const CheckedSize bytes = scale_offset + scale_bytes;
  if (!bytes.at_most(kMaxExtent) || !panel_bytes.ok() || !matrix_panels.ok()) {
    return Status(StatusCode::kTooLarge, "packed weights of n {0}, k {1} exceed 2^48 bytes",
                  shape.n, shape.k);
  }
  return WeightGeometry{matrix_panels.value(), panels.value(), panel_bytes.value(),
                        scale_offset.value(), bytes.value()};
}

PackedWeights PackedWeightsBuilder::over(const WeightShape& shape, const WeightGeometry& geometry,
                                         std::shared_ptr<const std::byte> bytes) {
  PackedWeights weights;
  weights.layout_ = shape.layout;
  weights.n_ = shape.n;
  weights.k_ = shape.k;
  weights.batch_ = shape.batch;
  weights.panel_bytes_ = geometry.panel_bytes;
  weights.scale_offset_ = static_cast<size_t>(geometry.scale_offset);
  weights.bytes_ = static_cast<size_t>(geometry.bytes);
  weights.data_ = std::move(bytes);
  return weights;
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
