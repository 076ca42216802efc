#include "ops/fp4_packing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "jit/int4_pack_avx512.h"
#include "ops/blocking.h"
#include "ops/checked.h"
#include "ops/group_layout.h"
#include "ops/mxcsr.h"
#include "ops/packed_weights_builder.h"
#include "ops/poison.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

constexpr int64_t kLineDepth = 8;
constexpr auto kLine = static_cast<int64_t>(kLineBytes);

const std::byte* bytes_of(const MatrixView& view) noexcept {
  return static_cast<const std::byte*>(view.data);
}

// ---- Block scales

/// How far the bits of a finite magnitude of e4m3 lie below those of 512, as bf16, in sixteenths;
/// 0 for zero.
constexpr uint8_t below_512(int magnitude) {
  constexpr int k512 = (127 + 9) << 3;  // exponent and upper three mantissa bits of bf16
  const int exponent = magnitude >> 3, mantissa = magnitude & 7;
  if (exponent != 0) return static_cast<uint8_t>(k512 - (exponent + 120) * 8 - mantissa);
  int lead = 3, normal = mantissa;  // subnormal: mantissa * 2^-9
  if (mantissa == 0) return 0;
  for (; normal < 8; normal *= 2) --lead;
  return static_cast<uint8_t>(k512 - (127 - 9 + lead) * 8 - (normal - 8));
}
static_assert(below_512(0x7e) == 2 && below_512(0x38) == 72 && below_512(0x08) == 120 &&
              below_512(0x07) == 122 && below_512(0x01) == 144);  // 448, 1, 2^-6, 7/8 of it, 2^-9

constexpr std::array<uint8_t, 128> kBelow512 = [] {
  std::array<uint8_t, 128> all{};
  for (int i = 0; i < 127; ++i) all[static_cast<size_t>(i)] = below_512(i);
  return all;
}();

constexpr uint8_t kSign = 0x80, kMagnitude = 0x7f, kNan = 0x7f;

/// Of eight bytes; the sum of a magnitude and 1 stays in its byte.
bool any_nan(uint64_t scales) noexcept {
  return (((scales & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u) & 0x8080808080808080u) != 0;
}

/// The place of the first NaN in a row of e4m3, or -1.
int64_t find_e4m3_nan(const std::byte* row, int64_t count) noexcept {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, row + i, sizeof eight);
    if (any_nan(eight)) break;
  }
  for (; i < count; ++i) {
    if ((static_cast<uint8_t>(row[i]) & kMagnitude) == kNan) return i;
  }
  return -1;
}

/// The same of e8m0.
int64_t find_e8m0_nan(const std::byte* row, int64_t count) noexcept {
  const void* found = std::memchr(row, 0xff, static_cast<size_t>(count));
  return found == nullptr ? -1 : static_cast<const std::byte*>(found) - row;
}

/// 2^(byte - 127) as bf16, of which the least is subnormal.
constexpr uint16_t bf16_of_e8m0(uint8_t byte) {
  return byte == 0 ? 0x0040 : static_cast<uint16_t>(byte << 7);
}

// ---- Packing

struct PackJob {
  const jit::Kernel& kernel;
  const Fp4PackSpec& spec;
  Span<const Fp4Weights> parts;
  WeightGeometry geometry;
  std::byte* to = nullptr;
};

/// What of a panel of a part lies where.
struct Panel {
  const Fp4Weights& w;
  int64_t first = 0;    ///< row of the checkpoint
  int64_t columns = 0;  ///< that exist
  std::byte* lines = nullptr;
  uint8_t* scales = nullptr;
};

/// Depth d of eight is nibble kNibble[d] of a word: as the kernel has it.
constexpr int kNibble[8] = {0, 4, 2, 6, 1, 5, 3, 7};

/// The last line, of `depths` less than eight: what may stand in the checkpoint's last nibble is
/// none of ours.
void pack_tail(const Panel& panel, int64_t line, int64_t depths, std::byte* to) noexcept {
  const int64_t step = row_step(panel.w.codes);
  for (int64_t c = 0; c < panel.columns; ++c) {
    const std::byte* from = bytes_of(panel.w.codes) + (panel.first + c) * step + line * 4;
    uint32_t word = 0;
    for (int64_t d = 0; d < depths; ++d) {
      const uint32_t byte = static_cast<uint8_t>(from[d / 2]);
      word |= (d % 2 == 0 ? byte & 15 : byte >> 4) << 4 * kNibble[d];
    }
    std::memcpy(to + c * 4, &word, sizeof word);
  }
}

void pack_codes(const PackJob& job, const Panel& panel) noexcept {
  const int64_t whole = job.spec.k / kLineDepth, rest = job.spec.k % kLineDepth;
  if (whole > 0) {
    const int64_t step = row_step(panel.w.codes);
    const void* column[kPanelColumns];
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      column[c] = bytes_of(panel.w.codes) + (panel.first + std::min(c, panel.columns - 1)) * step;
    }
    jit::Int4PackArgs args;
    args.ahead = kPanelColumns * step;  // the panel that follows
    args.column = column;
    args.to = panel.lines;
    args.lines = whole;
    args.panels = 1;
    args.columns = panel.columns;
    job.kernel.call(args);
  }
  std::byte* end = panel.lines + whole * kLine;
  std::memset(end, 0, static_cast<size_t>(job.geometry.panel_bytes - whole * kLine));
  if (rest != 0) pack_tail(panel, whole, rest, end);
}

/// A block scale of zero makes its codes zero, a negative one turns the signs of those that are
/// not.
void apply_sign(std::byte* word_of_line, uint8_t scale) noexcept {
  for (int64_t line = 0; line < kNvfp4Block / kLineDepth; ++line, word_of_line += kLine) {
    uint32_t word;
    std::memcpy(&word, word_of_line, sizeof word);
    const uint32_t nonzero = (word | word << 1 | word << 2) << 1 & 0x88888888u;
    word = (scale & kMagnitude) == 0 ? 0 : word ^ nonzero;
    std::memcpy(word_of_line, &word, sizeof word);
  }
}

void pack_e8m0(const PackJob& job, const Panel& panel) noexcept {
  const int64_t step = row_step(panel.w.scale);
  const int64_t groups = ceil_div(job.spec.k, job.spec.block());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      uint16_t bits = 0;
      if (c < panel.columns) {
        const std::byte* from = bytes_of(panel.w.scale) + (panel.first + c) * step;
        bits = bf16_of_e8m0(static_cast<uint8_t>(from[g]));
      }
      std::memcpy(panel.scales + 2 * (g * kPanelColumns + c), &bits, sizeof bits);
    }
  }
}

void pack_e4m3(const PackJob& job, const Panel& panel) noexcept {
  const int64_t present = ceil_div(job.spec.k, kNvfp4Block);
  std::memset(panel.scales, 0, static_cast<size_t>(job.geometry.blocks * kPanelColumns));
  const int64_t step = row_step(panel.w.scale);
  for (int64_t c = 0; c < panel.columns; ++c) {
    const std::byte* from = bytes_of(panel.w.scale) + (panel.first + c) * step;
    for (int64_t b = 0; b < present; ++b) {
      const auto scale = static_cast<uint8_t>(from[b]);
      panel.scales[b * kPanelColumns + c] = kBelow512[scale & kMagnitude];
      if (static_cast<uint8_t>(scale - 1) < kSign - 1) continue;  // positive
      apply_sign(panel.lines + b * (kNvfp4Block / kLineDepth) * kLine + c * 4, scale);
    }
  }
}

void pack_phase(void* ctx, int /*phase*/, int tid, int nthreads) {
  const auto& job = *static_cast<const PackJob*>(ctx);
  const auto parts = static_cast<int64_t>(job.parts.size());
  const WeightGeometry& g = job.geometry;
  const Range mine = split_range(g.panels, nthreads, tid);
  for (int64_t at = mine.begin; at < mine.end; ++at) {
    const int64_t first = at / parts * kPanelColumns;
    const bool nvfp4 = job.spec.format == Fp4Format::kNvfp4;
    const int64_t groups = ceil_div(job.spec.k, job.spec.block());
    std::byte* scales = job.to + (nvfp4 ? g.block_offset + at * g.blocks * kPanelColumns
                                        : g.scale_offset + at * groups * kPanelColumns * 2);
    const Panel panel{job.parts[static_cast<size_t>(at % parts)], first,
                      std::min(job.spec.n - first, kPanelColumns), job.to + at * g.panel_bytes,
                      reinterpret_cast<uint8_t*>(scales)};
    pack_codes(job, panel);
    if (nvfp4) {
      pack_e4m3(job, panel);
    } else {
      pack_e8m0(job, panel);
    }
  }
}

/// Not inlined: see MxcsrScope.
[[gnu::noinline]] float reciprocal(float x) noexcept {
  return 1.0f / x;
}

/// What multiplies. Finite and positive where the weights were checked.
float multiplier(const Fp4Weights& w) noexcept {
  float global;
  std::memcpy(&global, w.global.data, sizeof global);
  if (w.global_is == Fp4Global::kMultiplier) return global;
  const MxcsrScope mxcsr;
  return reciprocal(global);
}

/// By its bits: a host that takes denormals for zero must not see another answer.
bool finite_and_positive(float x) noexcept {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits > 0 && bits < 0x7f800000u;
}

void pack_globals(const Fp4PackSpec& spec, Span<const Fp4Weights> parts,
                  PackedWeightsBuilder* builder) noexcept {
  float* to = builder->scales();
  const auto count = static_cast<int64_t>(parts.size());
  for (int64_t p = 0; p < builder->geometry().panels; ++p) {
    const float global = multiplier(parts[static_cast<size_t>(p % count)]);
    const int64_t columns = std::min(spec.n - p / count * kPanelColumns, kPanelColumns);
    std::fill_n(to, columns, global);
    std::fill_n(to + columns, kPanelColumns - columns, 0.0f);
    to += kPanelColumns;
  }
}

WeightShape shape_of(const Fp4PackSpec& spec, size_t parts) noexcept {
  WeightShape shape{fp4_layout(spec.format, parts == 2), spec.n, spec.k, 1, {}};
  if (spec.format == Fp4Format::kNvfp4) return shape;
  const GroupLayout groups(spec.k, spec.block());
  shape.grouped = {groups.group, groups.groups, DType::kBF16, Int4Zeros::kSymmetric, false};
  return shape;
}

// ---- Checks

/// An operand's names by WeightPart.
using Names = const char* [3];

constexpr Names kGlobal = {"w.global", "gate.global", "up.global"};
constexpr Names kGlobalIs = {"w.global_is", "gate.global_is", "up.global_is"};

Status check_global(const Fp4Weights& w, size_t part) noexcept {
  if (const Status s = check_vector(w.global, kGlobal[part], DType::kF32, 1); !s.ok()) return s;
  float global;
  std::memcpy(&global, w.global.data, sizeof global);
  if (finite_and_positive(global) && finite_and_positive(multiplier(w))) return {};
  return Status(StatusCode::kInvalidArgument,
                "{s} must be finite and positive, and so must what multiplies", 0, 0,
                kGlobal[part]);
}

Status check_no_global(const Fp4Weights& w, size_t part) noexcept {
  if (w.global.data != nullptr) {
    return Status(StatusCode::kInvalidArgument, "{s} given, but mxfp4 has none", 0, 0,
                  kGlobal[part]);
  }
  if (w.global.size != 0) {
    return Status(StatusCode::kInvalidArgument, "{s}.size ({0}) must be 0: mxfp4 has none",
                  w.global.size, 0, kGlobal[part]);
  }
  if (w.global_is != Fp4Global::kMultiplier) {
    return Status(StatusCode::kInvalidArgument,
                  "{s} ({0}) must be kMultiplier (0): mxfp4 has no global scale",
                  static_cast<int64_t>(w.global_is), 0, kGlobalIs[part]);
  }
  return {};
}

}  // namespace

WeightLayout fp4_layout(Fp4Format format, bool gate_up) noexcept {
  if (format == Fp4Format::kMxfp4) {
    return gate_up ? WeightLayout::kE2M1Vnni8N16GateUp : WeightLayout::kE2M1Vnni8N16;
  }
  return gate_up ? WeightLayout::kNvfp4N16GateUp : WeightLayout::kNvfp4N16;
}

Status check_fp4_weights(const Fp4Weights& w, const Fp4PackSpec& spec, WeightPart part) noexcept {
  constexpr Names kCodes = {"w.codes", "gate.codes", "up.codes"};
  constexpr Names kScale = {"w.scale", "gate.scale", "up.scale"};
  const auto i = static_cast<size_t>(part);
  if (w.global_is > Fp4Global::kDivisor) {
    return Status(StatusCode::kInvalidArgument, "{s} ({0}) must be kMultiplier (0) or kDivisor (1)",
                  static_cast<int64_t>(w.global_is), 0, kGlobalIs[i]);
  }
  const bool nvfp4 = spec.format == Fp4Format::kNvfp4;
  const int64_t bytes = ceil_div(spec.k, 2), blocks = ceil_div(spec.k, spec.block());
  const Status codes = check_matrix(w.codes, kCodes[i], DType::kU8, spec.n, bytes);
  if (!codes.ok()) return codes;
  const Status scales =
      check_matrix(w.scale, kScale[i], nvfp4 ? DType::kE4M3 : DType::kE8M0, spec.n, blocks);
  if (!scales.ok()) return scales;
  // Before anything is read of views that may be longer than their memory.
  const auto geometry = weight_geometry(shape_of(spec, 2));
  if (!geometry.ok()) return geometry.status();
  for (int64_t row = 0; row < spec.n && blocks > 0; ++row) {
    const std::byte* from = bytes_of(w.scale) + row * row_step(w.scale);
    const int64_t at = nvfp4 ? find_e4m3_nan(from, blocks) : find_e8m0_nan(from, blocks);
    if (at < 0) continue;
    return Status(StatusCode::kInvalidArgument, "{s}[{0}, {1}] is NaN", row, at, kScale[i]);
  }
  return nvfp4 ? check_global(w, i) : check_no_global(w, i);
}

Result<jit::KernelHandle> fp4_pack_kernel(ContextImpl& ctx) {
  const jit::Int4PackAvx512Config config{Int4Storage::kRowMajor, jit::Int4PackBy::kWords,
                                         kPoisonRegisters};
  return ctx.kernel(to_string(config), [config] { return generate(config); });
}

Result<PackedWeights> pack_fp4(const jit::Kernel& kernel, ThreadPool& pool, const Fp4PackSpec& spec,
                               Span<const Fp4Weights> parts) {
  auto builder = PackedWeightsBuilder::allocate(shape_of(spec, parts.size()));
  if (!builder.ok()) return builder.status();
  const WeightGeometry& geometry = builder->geometry();
  if (geometry.bytes == 0) return std::move(*builder).seal();
  // The end of the last section.
  std::memset(builder->data() + geometry.bytes - kLine, 0, kLineBytes);
  PackJob job{kernel, spec, parts, geometry, builder->data()};
  pool.run(1, pack_phase, &job);
  if (spec.format == Fp4Format::kNvfp4) pack_globals(spec, parts, &*builder);
  return std::move(*builder).seal();
}

}  // namespace quern::inline v0
