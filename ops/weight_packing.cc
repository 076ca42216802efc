#include "ops/weight_packing.h"

#include <utility>

#include "ops/blocking.h"
#include "ops/packed_weights_builder.h"
#include "ops/panel_packing.h"
#include "ops/scale_value.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

struct PackJob {
  Span<const PanelSource> parts;
  int64_t batch_step = 0;  ///< bytes from one matrix of a batch to the next
  WeightGeometry geometry;
  std::byte* to = nullptr;
};

void pack_phase(void* ctx, int /*phase*/, int tid, int nthreads) {
  const auto& job = *static_cast<const PackJob*>(ctx);
  const auto parts = static_cast<int64_t>(job.parts.size());
  const Range mine = split_range(job.geometry.panels, nthreads, tid);
  for (int64_t at = mine.begin; at < mine.end; ++at) {
    const int64_t matrix = at / job.geometry.matrix_panels;
    const int64_t p = at % job.geometry.matrix_panels;
    const PanelSource& from = job.parts[static_cast<size_t>(p % parts)];
    from.moved_by(matrix * job.batch_step)
        .pack(p / parts, 1, job.geometry.panel_bytes, job.to + at * job.geometry.panel_bytes);
  }
}

void pack_panels(ThreadPool& pool, Span<const PanelSource> parts, int64_t batch_step,
                 PackedWeightsBuilder* builder) {
  PackJob job{parts, batch_step, builder->geometry(), builder->data()};
  pool.run(1, pack_phase, &job);
}

void pack_scales(Span<const Int8Weights> parts, PackedWeightsBuilder* builder) {
  const auto count = static_cast<int64_t>(parts.size());
  float* to = builder->scales();
  for (int64_t p = 0; p < builder->geometry().panels; ++p) {
    const VectorView& scale = parts[static_cast<size_t>(p % count)].scale;
    const int64_t first = p / count * kPanelColumns;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      *to++ = first + c < scale.size ? scale_value(scale.data, scale.dtype, first + c) : 0.0f;
    }
  }
}

/// One scale a column, or one a matrix, which all its columns then carry.
void pack_batch_scales(const MatrixView& scale, int64_t n, PackedWeightsBuilder* builder) {
  float* to = builder->scales();
  const int64_t padded = builder->geometry().matrix_panels * kPanelColumns;
  for (int64_t matrix = 0; matrix < scale.rows; ++matrix) {
    for (int64_t c = 0; c < padded; ++c) {
      const int64_t at = matrix * scale.row_stride + (scale.cols == 1 ? 0 : c);
      *to++ = c < n ? scale_value(scale.data, scale.dtype, at) : 0.0f;
    }
  }
}

}  // namespace

Result<PackedWeights> pack_bf16(ThreadPool& pool, Span<const MatrixView> parts) {
  const auto layout =
      parts.size() == 2 ? WeightLayout::kBf16Vnni2N16GateUp : WeightLayout::kBf16Vnni2N16;
  auto builder = PackedWeightsBuilder::allocate({layout, parts[0].rows, parts[0].cols});
  if (!builder.ok()) return builder.status();
  PanelSource sources[2];
  for (size_t i = 0; i < parts.size(); ++i) sources[i] = PanelSource(parts[i]);
  pack_panels(pool, {sources, parts.size()}, 0, &*builder);
  return std::move(*builder).seal();
}

Result<PackedWeights> pack_int8(ThreadPool& pool, Span<const Int8Weights> parts) {
  const auto layout =
      parts.size() == 2 ? WeightLayout::kU8Vnni4N16GateUp : WeightLayout::kU8Vnni4N16;
  auto builder = PackedWeightsBuilder::allocate({layout, parts[0].codes.rows, parts[0].codes.cols});
  if (!builder.ok()) return builder.status();
  PanelSource sources[2];
  for (size_t i = 0; i < parts.size(); ++i) sources[i] = PanelSource(parts[i].codes);
  pack_panels(pool, {sources, parts.size()}, 0, &*builder);
  pack_scales(parts, &*builder);
  return std::move(*builder).seal();
}

Result<PackedWeights> pack_batch(ThreadPool& pool, const BmmWeights& w) {
  const BatchView& v = w.values;
  const bool nk = w.order == BmmOrder::kNK;
  const int64_t n = nk ? v.rows : v.cols;
  const bool codes = v.dtype != DType::kBF16;
  const WeightLayout layout = v.dtype == DType::kS8     ? WeightLayout::kU8Vnni4N16
                              : v.dtype == DType::kE4M3 ? WeightLayout::kE4M3Vnni2N16Batch
                                                        : WeightLayout::kBf16Vnni2N16;
  auto builder = PackedWeightsBuilder::allocate({layout, n, nk ? v.cols : v.rows, v.batch});
  if (!builder.ok()) return builder.status();
  const PanelSource source(matrix_of(v), w.order);
  pack_panels(pool, {&source, 1}, batch_step(v), &*builder);
  if (codes) pack_batch_scales(w.scale, n, &*builder);
  return std::move(*builder).seal();
}

}  // namespace quern::inline v0
