// SSE2 is part of every x86-64, so that it needs no dispatch.
#include "ops/fp8_packing.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ops/blocking.h"
#include "ops/checked.h"
#include "ops/float8_lines.h"
#include "ops/packed_weights_builder.h"
#include "ops/scale_value.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

constexpr auto kLine = static_cast<int64_t>(kLineBytes);
constexpr int64_t kLineDepth = kFloat8LineDepth;
// Lines that 16 bytes of each of four rows are a quarter of.
constexpr int64_t kLinesAtOnce = 4;

struct PackJob {
  const Fp8PackSpec& spec;
  GroupLayout groups;
  Span<const Fp8Weights> parts;
  WeightGeometry geometry;
  std::byte* to = nullptr;
};

/// `depths` depths of `columns` columns from `from` on become the first lines at `to`; of whole
/// lines all bytes are written.
void pack_lines(const std::byte* from, int64_t step, int64_t columns, int64_t depths,
                std::byte* to) noexcept {
  int64_t depth = 0;
  if (columns == kPanelColumns) {
    constexpr int64_t kDepths = kLinesAtOnce * kLineDepth;
    for (; depth + kDepths <= depths; depth += kDepths) {
      for (int64_t c = 0; c < kPanelColumns; c += 4) {
        float8_lines_from_columns(from + c * step + depth, step, to + depth * 16 + c * 4);
      }
    }
  }
  for (; depth < depths; depth += kLineDepth) {
    std::byte* line = to + depth * 16;
    std::memset(line, 0, kLineBytes);
    const int64_t present = std::min(kLineDepth, depths - depth);
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t d = 0; d < present; ++d) line[float8_place(c, d)] = from[c * step + depth + d];
    }
  }
}

/// A hint: beyond the end of the matrix nothing happens.
void fetch(const std::byte* from, int64_t offset) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(offset);
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
}

void pack_codes(const PackJob& job, const MatrixView& codes, int64_t panel,
                std::byte* to) noexcept {
  const GroupLayout& l = job.groups;
  const int64_t step = row_step(codes);
  const int64_t first = panel * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, job.spec.n - first);
  const std::byte* rows = static_cast<const std::byte*>(codes.data) + first * step;
  for (int64_t g = 0; g < l.groups; ++g, to += l.padded * 16) {
    const int64_t depths = std::min(l.group, l.k - g * l.group);
    // Cut, so that the same part of the panel that follows can be fetched meanwhile.
    constexpr int64_t kPart = 4 * kLine;
    for (int64_t d = 0; d < depths; d += kPart) {
      const int64_t part = std::min(kPart, depths - d);
      const std::byte* from = rows + g * l.group + d;
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t i = 0; i < part; i += kLine) fetch(from, (c + kPanelColumns) * step + i);
      }
      pack_lines(from, step, columns, part, to + d * 16);
    }
    const int64_t written = ceil_div(depths, kLineDepth) * kLine;
    std::memset(to + written, 0, static_cast<size_t>(l.padded * 16 - written));
  }
}

void pack_scales(const PackJob& job, const MatrixView& scale, int64_t panel, float* to) noexcept {
  const int64_t block_n =
      job.spec.block_n < 0 ? std::max<int64_t>(job.spec.n, 1) : job.spec.block_n;
  for (int64_t g = 0; g < job.groups.groups; ++g) {
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const int64_t column = panel * kPanelColumns + c;
      *to++ = column < job.spec.n
                  ? scale_value(scale.data, scale.dtype, column / block_n * scale.row_stride + g)
                  : 0.0f;
    }
  }
}

void pack_phase(void* ctx, int /*phase*/, int tid, int nthreads) {
  const auto& job = *static_cast<const PackJob*>(ctx);
  const auto parts = static_cast<int64_t>(job.parts.size());
  const Range mine = split_range(job.geometry.panels, nthreads, tid);
  auto* scales = reinterpret_cast<float*>(job.to + job.geometry.scale_offset);
  for (int64_t at = mine.begin; at < mine.end; ++at) {
    const Fp8Weights& w = job.parts[static_cast<size_t>(at % parts)];
    pack_codes(job, w.codes, at / parts, job.to + at * job.geometry.panel_bytes);
    pack_scales(job, w.scale, at / parts, scales + at * job.groups.groups * kPanelColumns);
  }
}

/// An operand's names by WeightPart.
using Names = const char* [3];

int64_t blocks_of(int64_t size, int64_t block) noexcept {
  if (size == 0) return 0;
  return block < 0 ? 1 : ceil_div(size, block);
}

}  // namespace

WeightLayout fp8_layout(DType weights, bool gate_up) noexcept {
  if (weights == DType::kE5M2) {
    return gate_up ? WeightLayout::kE5M2Vnni2N16GateUp : WeightLayout::kE5M2Vnni2N16;
  }
  return gate_up ? WeightLayout::kE4M3Vnni2N16GateUp : WeightLayout::kE4M3Vnni2N16;
}

Status check_fp8_weights(const Fp8Weights& w, const Fp8PackSpec& spec, WeightPart part) noexcept {
  constexpr Names kCodes = {"w.codes", "gate.codes", "up.codes"};
  constexpr Names kScale = {"w.scale", "gate.scale", "up.scale"};
  constexpr Names kScaleType = {"w.scale.dtype", "gate.scale.dtype", "up.scale.dtype"};
  const auto i = static_cast<size_t>(part);
  if (const Status s = check_matrix(w.codes, kCodes[i], spec.weights, spec.n, spec.k); !s.ok()) {
    return s;
  }
  const DType type = w.scale.dtype;
  const Status known = check_dtype(type, kScaleType[i], {DType::kF32, DType::kBF16, DType::kF16});
  if (!known.ok()) return known;
  return check_matrix(w.scale, kScale[i], type, blocks_of(spec.n, spec.block_n),
                      blocks_of(spec.k, spec.block_k));
}

Result<PackedWeights> pack_fp8(ThreadPool& pool, const Fp8PackSpec& spec,
                               Span<const Fp8Weights> parts) {
  const GroupLayout groups = spec.groups();
  auto builder = PackedWeightsBuilder::allocate(
      {fp8_layout(spec.weights, parts.size() == 2),
       spec.n,
       spec.k,
       1,
       {groups.group, groups.groups, DType::kF32, Int4Zeros::kSymmetric, false}});
  if (!builder.ok()) return builder.status();
  PackJob job{spec, groups, parts, builder->geometry(), builder->data()};
  if (job.geometry.panels > 0) pool.run(1, pack_phase, &job);
  return std::move(*builder).seal();
}

}  // namespace quern::inline v0
