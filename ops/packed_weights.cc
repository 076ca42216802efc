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

Result<WeightGeometry> weight_geometry(WeightLayout layout, int64_t n, int64_t k) noexcept {
  const LayoutTraits traits = layout_traits(layout);
  const CheckedSize panels = CheckedSize(ceil_div(n, kPanelColumns)) * traits.parts;
  const CheckedSize panel_bytes = CheckedSize(ceil_div(k, traits.k_step * kLinesOfATile)) *
                                  kLinesOfATile * static_cast<int64_t>(kLineBytes);
  const CheckedSize scale_offset = panels * panel_bytes;
  const CheckedSize scale_bytes =
      traits.scales ? panels * kPanelColumns * static_cast<int64_t>(sizeof(float)) : CheckedSize(0);
  const CheckedSize bytes = scale_offset + scale_bytes;
  if (!bytes.at_most(kMaxExtent) || !panel_bytes.ok()) {
    return Status(StatusCode::kTooLarge, "packed weights of n {0}, k {1} exceed 2^48 bytes", n, k);
  }
  return WeightGeometry{panels.value(), panel_bytes.value(), scale_offset.value(), bytes.value()};
}

PackedWeights PackedWeightsBuilder::over(WeightLayout layout, int64_t n, int64_t k,
                                         const WeightGeometry& geometry,
                                         std::shared_ptr<const std::byte> bytes) {
  PackedWeights weights;
  weights.layout_ = layout;
  weights.n_ = n;
  weights.k_ = k;
  weights.panel_bytes_ = geometry.panel_bytes;
  weights.scale_offset_ = static_cast<size_t>(geometry.scale_offset);
  weights.bytes_ = static_cast<size_t>(geometry.bytes);
  weights.data_ = std::move(bytes);
  return weights;
}

Result<PackedWeightsBuilder> PackedWeightsBuilder::allocate(WeightLayout layout, int64_t n,
                                                            int64_t k) {
  const auto geometry = weight_geometry(layout, n, k);
  if (!geometry.ok()) return geometry.status();
  PackedWeightsBuilder builder;
  builder.data_ = allocate_weight_memory(static_cast<size_t>(geometry->bytes));
  if (builder.data_ == nullptr) {
    return Status(StatusCode::kOutOfMemory, "no memory for {0} bytes of packed weights",
                  geometry->bytes);
  }
  builder.panels_ = geometry->panels;
  builder.weights_ = over(layout, n, k, *geometry, nullptr);
  return builder;
}

PackedWeights PackedWeightsBuilder::seal() && {
  weights_.data_ = std::move(data_);
  return std::move(weights_);
}

}  // namespace quern::inline v0
