#include "ops/int4_packing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "jit/int4_pack_avx512.h"
#include "ops/blocking.h"
#include "ops/checked.h"
#include "ops/int4_order.h"
#include "ops/packed_weights_builder.h"
#include "ops/poison.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

// Panels that are packed side by side: of a row of words that a checkpoint stores by depths, so
// much is read at once, in place of 64 bytes (AWQ: 8) in each of thousands of pages.
constexpr int64_t kPanelsAtOnce = 32;
// Rows of words that are fetched before they are read.
constexpr int64_t kRowsAhead = 8;
// A line of AWQ's words holds so many panels: threads share none.
constexpr int64_t kPanelsApart = 8;

struct PackJob {
  const Int4PackKernels& kernels;
  const Int4PackSpec& spec;
  const Int4Order& order;
  Span<const Int4Weights> parts;
  const PackProgress& progress;
  WeightGeometry geometry;
  std::byte* to = nullptr;
  std::atomic<int64_t> done{0};
  int64_t reported = 0;  ///< percent; of the reporting thread
};

/// Panels of one part, side by side, all with as many columns.
struct PanelRange {
  size_t part = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t columns = kPanelColumns;
};

const std::byte* bytes_of(const MatrixView& view) noexcept {
  return static_cast<const std::byte*>(view.data);
}

// ---- Codes

void point_to_columns(const MatrixView& codes, const PanelRange& panels,
                      const void* (&column)[kPanelColumns]) {
  const int64_t step = row_step(codes);
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    const int64_t row = panels.first * kPanelColumns + std::min(c, panels.columns - 1);
    column[c] = bytes_of(codes) + row * step;
  }
}

void pack_codes(const PackJob& job, const PanelRange& panels) {
  if (job.spec.k == 0) return;  // no words, and nothing to point at
  const Int4Weights& w = job.parts[panels.part];
  const auto storage = static_cast<size_t>(w.storage);
  const int64_t panel_bytes = job.geometry.panel_bytes;
  const auto parts = static_cast<int64_t>(job.parts.size());
  const int64_t index = panels.first * parts + static_cast<int64_t>(panels.part);
  const void* column[kPanelColumns];
  jit::Int4PackArgs args;
  args.row_step = row_step(w.codes);
  args.ahead = kRowsAhead * args.row_step;
  args.to_step = parts * panel_bytes;
  args.panels = panels.count;
  args.columns = panels.columns;
  const std::byte* words = nullptr;
  if (w.storage == Int4Storage::kRowMajor) {
    point_to_columns(w.codes, panels, column);
    args.column = column;
    args.ahead = kPanelColumns * args.row_step;  // the panel that follows
  } else {
    const int64_t panel_words = w.storage == Int4Storage::kAwq ? 2 : kPanelColumns;
    words = bytes_of(w.codes) + panels.first * panel_words * 4;
  }
  const bool by_words = job.kernels.words[storage] != nullptr;
  for (const Int4Lines& lines : by_words ? job.order.by_words : job.order.by_depths) {
    args.to = job.to + index * panel_bytes + lines.first * static_cast<int64_t>(kLineBytes);
    args.lines = lines.count;
    args.words = words;
    if (lines.words) {
      args.column_offset = 4 * lines.word;
      if (words != nullptr) args.words = words + lines.word * args.row_step;
      job.kernels.words[storage]->call(args);
    } else {
      args.depths = job.order.depths.data() + lines.first * GroupLayout::kLineDepth;
      job.kernels.depths[storage]->call(args);
    }
  }
}

// ---- Scales and zeros

/// What a packed panel has of numbers for each group: kPanelColumns of `size` bytes.
std::byte* section_of(const PackJob& job, int64_t offset, size_t part, int64_t panel,
                      size_t size) noexcept {
  const int64_t index = panel * static_cast<int64_t>(job.parts.size()) + static_cast<int64_t>(part);
  return job.to + offset +
         index * job.order.layout.groups * kPanelColumns * static_cast<int64_t>(size);
}

/// Scales, and zeros that are floats: bits unchanged, 0 beyond `columns`.
template <size_t kSize>
void pack_numbers(const PackJob& job, const MatrixView& from, bool row_major, int64_t panel,
                  int64_t columns, std::byte* to) {
  constexpr size_t kRow = kSize * kPanelColumns;
  const int64_t step = row_step(from);
  const std::vector<int32_t>& stored = job.order.stored;
  const int64_t first = panel * kPanelColumns;
  if (!row_major) {
    for (size_t g = 0; g < stored.size(); ++g) {
      const auto bytes = static_cast<size_t>(columns) * kSize;
      const std::byte* row = bytes_of(from) + stored[g] * step + first * int64_t{kSize};
      std::memcpy(to + g * kRow, row, bytes);
      std::memset(to + g * kRow + bytes, 0, kRow - bytes);
    }
    return;
  }
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    std::byte* at = to + static_cast<size_t>(c) * kSize;
    if (c >= columns) {
      for (size_t g = 0; g < stored.size(); ++g) std::memset(at + g * kRow, 0, kSize);
      continue;
    }
    const std::byte* row = bytes_of(from) + (first + c) * step;
    for (size_t g = 0; g < stored.size(); ++g) {
      std::memcpy(at + g * kRow, row + stored[g] * int64_t{kSize}, kSize);
    }
  }
}

/// Nibble j of a word becomes byte j.
uint64_t spread(uint32_t word) noexcept {
  uint64_t x = word;
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

/// Nibbles 0..3 are the even columns of AWQ's eight, 4..7 the odd ones.
uint64_t spread_awq(uint32_t word) noexcept {
  const auto to_even = [](uint64_t x) noexcept {
    x = (x | x << 24) & 0x000000ff000000ffu;
    return (x | x << 12) & 0x000f000f000f000fu;
  };
  return to_even(word & 0xffff) | to_even(word >> 16) << 8;
}

/// Words of eight columns each to a byte a column, 0 beyond `columns`.
void pack_zero_words(const PackJob& job, const Int4Weights& w, int64_t panel, int64_t columns,
                     std::byte* to) {
  const int64_t step = row_step(w.zero);
  const bool row_major = w.storage == Int4Storage::kRowMajor;
  const uint64_t offset = static_cast<uint64_t>(w.zero_offset) * 0x0101010101010101u;
  for (const int32_t g : job.order.stored) {
    for (int64_t half = 0; half < 2; ++half, to += 8) {
      const int64_t left = columns - 8 * half;
      if (left <= 0) {
        std::memset(to, 0, 8);
        continue;
      }
      const int64_t eight = 2 * panel + half;
      uint32_t word;
      std::memcpy(&word,
                  bytes_of(w.zero) + (row_major ? eight * step + 4 * g : g * step + 4 * eight),
                  sizeof word);
      uint64_t zeros = (w.storage == Int4Storage::kAwq ? spread_awq(word) : spread(word)) + offset;
      if (left < 8) zeros &= (uint64_t{1} << (8 * left)) - 1;
      std::memcpy(to, &zeros, sizeof zeros);
    }
  }
}

void pack_groups(const PackJob& job, size_t part, int64_t panel, int64_t columns) {
  const Int4Weights& w = job.parts[part];
  const bool row_major = w.storage == Int4Storage::kRowMajor;
  const size_t size = size_of(job.spec.scale);
  std::byte* scales = section_of(job, job.geometry.scale_offset, part, panel, size);
  if (size == 4) {
    pack_numbers<4>(job, w.scale, row_major, panel, columns, scales);
  } else {
    pack_numbers<2>(job, w.scale, row_major, panel, columns, scales);
  }
  if (job.spec.zeros == Int4Zeros::kSymmetric) return;
  const bool floats = job.spec.zeros == Int4Zeros::kF32;
  std::byte* zeros = section_of(job, job.geometry.zero_offset, part, panel, floats ? 4 : 1);
  if (floats) {
    pack_numbers<4>(job, w.zero, row_major, panel, columns, zeros);
  } else {
    pack_zero_words(job, w, panel, columns, zeros);
  }
}

// ---- All of it

void pack_range(const PackJob& job, size_t part, const Range& panels) {
  const bool one_by_one = job.parts[part].storage == Int4Storage::kRowMajor;
  const int64_t whole_end = std::min(panels.end, job.spec.n / kPanelColumns);
  for (int64_t p = panels.begin; p < whole_end;) {
    const int64_t count = one_by_one ? 1 : whole_end - p;
    pack_codes(job, {part, p, count});
    p += count;
  }
  const int64_t rest = job.spec.n % kPanelColumns;
  if (whole_end < panels.end) pack_codes(job, {part, whole_end, 1, rest});
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    pack_groups(job, part, p, p < whole_end ? kPanelColumns : rest);
  }
}

/// The last report is the caller's: only there it is certain that everything is done.
void report(PackJob* job, int64_t done) {
  const int64_t percent = done * 100 / job->geometry.panels;
  if (percent <= job->reported || done == job->geometry.panels) return;
  job->reported = percent;
  job->progress.report(job->progress.user, done, job->geometry.panels);
}

void pack_phase(void* ctx, int /*phase*/, int tid, int nthreads) {
  auto& job = *static_cast<PackJob*>(ctx);
  const auto parts = static_cast<int64_t>(job.parts.size());
  const Range mine = split_steps(job.geometry.panels / parts, kPanelsApart, nthreads, tid);
  for (int64_t p = mine.begin; p < mine.end; p += kPanelsAtOnce) {
    const Range panels{p, std::min(p + kPanelsAtOnce, mine.end)};
    for (size_t part = 0; part < job.parts.size(); ++part) pack_range(job, part, panels);
    const int64_t packed = panels.size() * parts;
    const int64_t done = job.done.fetch_add(packed, std::memory_order_relaxed) + packed;
    if (tid == 0 && job.progress.report != nullptr) report(&job, done);
  }
}

Status check_same_order(Span<const Int4Weights> parts) noexcept {
  const VectorView& gate = parts[0].g_idx;
  const VectorView& up = parts[parts.size() - 1].g_idx;
  for (int64_t i = 0; i < gate.size; ++i) {
    if (g_idx_at(gate, i) != g_idx_at(up, i)) {
      return Status(StatusCode::kInvalidArgument,
                    "gate.g_idx and up.g_idx must be equal, as both multiply the same "
                    "activations; at {0} they are not",
                    i);
    }
  }
  return {};
}

/// What lies between sections.
void clear_ends(const WeightGeometry& geometry, std::byte* to) noexcept {
  for (const int64_t end : {geometry.zero_offset, geometry.order_offset, geometry.bytes}) {
    if (end > geometry.scale_offset) std::memset(to + end - kLineBytes, 0, kLineBytes);
  }
}

Result<jit::KernelHandle> pack_kernel(ContextImpl& ctx, Int4Storage storage, jit::Int4PackBy by) {
  const jit::Int4PackAvx512Config config{storage, by, kPoisonRegisters};
  return ctx.kernel(to_string(config), [config] { return generate(config); });
}

// ---- Checks

/// An operand's names by WeightPart.
using Names = const char* [3];

Status bad(const char* text, int64_t v0, int64_t v1, const char* name) noexcept {
  return Status(StatusCode::kInvalidArgument, text, v0, v1, name);
}

/// A matrix that has a row for each group, or with kRowMajor a column.
Status check_by_group(const MatrixView& view, const char* name, DType type, bool row_major,
                      int64_t n, int64_t groups) noexcept {
  return row_major ? check_matrix(view, name, type, n, groups)
                   : check_matrix(view, name, type, groups, n);
}

Status check_codes(const Int4Weights& w, const Int4PackSpec& spec, size_t part) noexcept {
  constexpr Names kStorage = {"w.storage", "gate.storage", "up.storage"};
  constexpr Names kCodes = {"w.codes", "gate.codes", "up.codes"};
  const auto words = [](int64_t codes) noexcept { return ceil_div(codes, 8); };
  const auto check = [&](int64_t rows, int64_t cols) noexcept {
    return check_matrix(w.codes, kCodes[part], DType::kS32, rows, cols);
  };
  switch (w.storage) {
    case Int4Storage::kGptq:
      return check(words(spec.k), spec.n);
    case Int4Storage::kAwq:
      return check(spec.k, words(spec.n));
    case Int4Storage::kRowMajor:
      return check(spec.n, words(spec.k));
  }
  return bad("{s} ({0}) must be kGptq (0), kAwq (1) or kRowMajor (2)",
             static_cast<int64_t>(w.storage), 0, kStorage[part]);
}

Status check_absent(const void* data, const char* name) noexcept {
  if (data == nullptr) return {};
  return bad("{s} given, but the plan's Desc does not ask for it", 0, 0, name);
}

Status check_zeros(const Int4Weights& w, const Int4PackSpec& spec, int64_t groups,
                   size_t part) noexcept {
  constexpr Names kZero = {"w.zero", "gate.zero", "up.zero"};
  constexpr Names kOffset = {"w.zero_offset", "gate.zero_offset", "up.zero_offset"};
  const bool row_major = w.storage == Int4Storage::kRowMajor;
  switch (spec.zeros) {
    case Int4Zeros::kSymmetric:
      return check_absent(w.zero.data, kZero[part]);
    case Int4Zeros::kF32:
      return check_by_group(w.zero, kZero[part], DType::kF32, row_major, spec.n, groups);
    case Int4Zeros::kInteger:
      break;
  }
  if (w.zero_offset != 0 && w.zero_offset != 1) {
    return bad("{s} ({0}) must be 0 or 1", w.zero_offset, 0, kOffset[part]);
  }
  return check_by_group(w.zero, kZero[part], DType::kS32, row_major, ceil_div(spec.n, 8), groups);
}

Status check_g_idx(const Int4Weights& w, const Int4PackSpec& spec, int64_t groups,
                   size_t part) noexcept {
  constexpr Names kIndex = {"w.g_idx", "gate.g_idx", "up.g_idx"};
  constexpr Names kBelow = {"w.g_idx[{1}] is {0}, which is no group that has scales",
                            "gate.g_idx[{1}] is {0}, which is no group that has scales",
                            "up.g_idx[{1}] is {0}, which is no group that has scales"};
  if (!spec.act_order) return check_absent(w.g_idx.data, kIndex[part]);
  const Status s = check_vector(w.g_idx, kIndex[part], DType::kS32, spec.k);
  if (!s.ok()) return s;
  for (int64_t i = 0; i < spec.k; ++i) {
    const int32_t g = g_idx_at(w.g_idx, i);
    if (g < 0 || g >= groups) return bad(kBelow[part], g, i, "");
  }
  return {};
}

}  // namespace

Status check_int4_weights(const Int4Weights& w, const Int4PackSpec& spec,
                          WeightPart part) noexcept {
  constexpr Names kScale = {"w.scale", "gate.scale", "up.scale"};
  const auto i = static_cast<size_t>(part);
  if (const Status s = check_codes(w, spec, i); !s.ok()) return s;
  const bool row_major = w.storage == Int4Storage::kRowMajor;
  const int64_t groups = GroupLayout(spec.k, spec.group).groups;
  const Status scales = check_by_group(w.scale, kScale[i], spec.scale, row_major, spec.n, groups);
  if (!scales.ok()) return scales;
  if (const Status s = check_zeros(w, spec, groups, i); !s.ok()) return s;
  return check_g_idx(w, spec, groups, i);
}

Result<Int4PackKernels> int4_pack_kernels(ContextImpl& ctx) {
  Int4PackKernels kernels;
  for (const auto storage : {Int4Storage::kGptq, Int4Storage::kAwq, Int4Storage::kRowMajor}) {
    const auto i = static_cast<size_t>(storage);
    auto depths = pack_kernel(ctx, storage, jit::Int4PackBy::kDepths);
    if (!depths.ok()) return depths.status();
    kernels.depths[i] = std::move(*depths);
    if (storage == Int4Storage::kAwq) continue;
    auto words = pack_kernel(ctx, storage, jit::Int4PackBy::kWords);
    if (!words.ok()) return words.status();
    kernels.words[i] = std::move(*words);
  }
  return kernels;
}

Result<PackedWeights> pack_int4(const Int4PackKernels& kernels, ThreadPool& pool,
                                const Int4PackSpec& spec, Span<const Int4Weights> parts,
                                const PackProgress& progress) {
  if (spec.act_order) {
    if (const Status s = check_same_order(parts); !s.ok()) return s;
  }
  const Int4Order order = spec.act_order ? int4_order(spec.k, spec.group, parts[0].g_idx)
                                         : int4_order(spec.k, spec.group);
  const auto layout =
      parts.size() == 2 ? WeightLayout::kU4Vnni8N16GateUp : WeightLayout::kU4Vnni8N16;
  auto builder = PackedWeightsBuilder::allocate(
      {layout,
       spec.n,
       spec.k,
       1,
       {order.layout.group, order.layout.groups, spec.scale, spec.zeros, spec.act_order}});
  if (!builder.ok()) return builder.status();
  const WeightGeometry& geometry = builder->geometry();
  clear_ends(geometry, builder->data());
  if (spec.act_order && !order.depths.empty()) {
    std::memcpy(builder->data() + geometry.order_offset, order.depths.data(),
                order.depths.size() * sizeof(int32_t));
  }
  PackJob job{kernels, spec, order, parts, progress, geometry, builder->data()};
  if (geometry.panels > 0) pool.run(1, pack_phase, &job);
  if (progress.report != nullptr) progress.report(progress.user, geometry.panels, geometry.panels);
  return std::move(*builder).seal();
}

}  // namespace quern::inline v0
