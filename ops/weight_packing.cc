#include "ops/weight_packing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/blocking.h"
#include "ops/packed_weights_builder.h"

namespace quern::inline v0 {
namespace {

// A line of a panel is 16 columns of 4 bytes each: two bf16 depths or four u8 depths.
constexpr int64_t kCellBytes = 4;

/// Bytes of one matrix as the packer sees it.
struct Source {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int64_t rows = 0;
  int64_t k_bytes = 0;  ///< of one row
};

Source source_of(const MatrixView& view) {
  const auto size = static_cast<int64_t>(size_of(view.dtype));
  return {static_cast<const std::byte*>(view.data), view.row_stride * size, view.rows,
          view.cols * size};
}

/// Fills one panel from rows first_row..+15. `flip` is xored into every cell: it turns s8 into the
/// unsigned code w + 128, padding (zero) included.
void pack_panel(const Source& from, int64_t first_row, uint32_t flip, int64_t panel_bytes,
                std::byte* to) {
  const int64_t columns = std::clamp<int64_t>(from.rows - first_row, 0, kPanelColumns);
  const int64_t lines = panel_bytes / static_cast<int64_t>(kLineBytes);
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t at = line * kCellBytes;
    const auto present = static_cast<size_t>(std::clamp<int64_t>(from.k_bytes - at, 0, kCellBytes));
    std::byte* cell = to + line * static_cast<int64_t>(kLineBytes);
    for (int64_t c = 0; c < kPanelColumns; ++c, cell += kCellBytes) {
      uint32_t bits = 0;
      if (c < columns && present > 0)
        std::memcpy(&bits, from.data + (first_row + c) * from.row_bytes + at, present);
      bits ^= flip;
      std::memcpy(cell, &bits, sizeof bits);
    }
  }
}

struct PackJob {
  Span<const Source> parts;
  uint32_t flip = 0;
  int64_t panels = 0;
  int64_t panel_bytes = 0;
  std::byte* to = nullptr;
};

void pack_phase(void* ctx, int /*phase*/, int tid, int nthreads) {
  const auto& job = *static_cast<const PackJob*>(ctx);
  const auto parts = static_cast<int64_t>(job.parts.size());
  const Range mine = split_range(job.panels, nthreads, tid);
  for (int64_t p = mine.begin; p < mine.end; ++p) {
    pack_panel(job.parts[static_cast<size_t>(p % parts)], p / parts * kPanelColumns, job.flip,
               job.panel_bytes, job.to + p * job.panel_bytes);
  }
}

void pack_panels(ThreadPool& pool, Span<const Source> parts, uint32_t flip,
                 PackedWeightsBuilder* builder) {
  PackJob job{parts, flip, builder->panels(), builder->panel_bytes(), builder->data()};
  pool.run(1, pack_phase, &job);
}

float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t bits =
      exponent == 31 ? 0x7f800000u | mantissa << 13 : (exponent + 112) << 23 | mantissa << 13;
  float f;
  const uint32_t all = sign | bits;
  std::memcpy(&f, &all, sizeof f);
  return f;
}

float scale_at(const VectorView& scale, int64_t i) {
  switch (scale.dtype) {
    case DType::kBF16: {
      bfloat16 b;
      std::memcpy(&b, static_cast<const std::byte*>(scale.data) + 2 * i, sizeof b);
      return b.to_float();
    }
    case DType::kF16: {
      uint16_t h;
      std::memcpy(&h, static_cast<const std::byte*>(scale.data) + 2 * i, sizeof h);
      return f16_to_float(h);
    }
    default: {
      float f;
      std::memcpy(&f, static_cast<const std::byte*>(scale.data) + 4 * i, sizeof f);
      return f;
    }
  }
}

void pack_scales(Span<const Int8Weights> parts, PackedWeightsBuilder* builder) {
  const auto count = static_cast<int64_t>(parts.size());
  float* to = builder->scales();
  for (int64_t p = 0; p < builder->panels(); ++p) {
    const VectorView& scale = parts[static_cast<size_t>(p % count)].scale;
    const int64_t first = p / count * kPanelColumns;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      *to++ = first + c < scale.size ? scale_at(scale, first + c) : 0.0f;
    }
  }
}

}  // namespace

Result<PackedWeights> pack_bf16(ThreadPool& pool, Span<const MatrixView> parts) {
  const auto layout =
      parts.size() == 2 ? WeightLayout::kBf16Vnni2N16GateUp : WeightLayout::kBf16Vnni2N16;
  auto builder = PackedWeightsBuilder::allocate(layout, parts[0].rows, parts[0].cols);
  if (!builder.ok()) return builder.status();
  Source sources[2];
  for (size_t i = 0; i < parts.size(); ++i) sources[i] = source_of(parts[i]);
  pack_panels(pool, {sources, parts.size()}, 0, &*builder);
  return std::move(*builder).seal();
}

Result<PackedWeights> pack_int8(ThreadPool& pool, Span<const Int8Weights> parts) {
  const auto layout =
      parts.size() == 2 ? WeightLayout::kU8Vnni4N16GateUp : WeightLayout::kU8Vnni4N16;
  auto builder = PackedWeightsBuilder::allocate(layout, parts[0].codes.rows, parts[0].codes.cols);
  if (!builder.ok()) return builder.status();
  Source sources[2];
  for (size_t i = 0; i < parts.size(); ++i) sources[i] = source_of(parts[i].codes);
  pack_panels(pool, {sources, parts.size()}, 0x80808080u, &*builder);
  pack_scales(parts, &*builder);
  return std::move(*builder).seal();
}

}  // namespace quern::inline v0
