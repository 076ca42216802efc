#include "ops/grouped_families.h"

#include <algorithm>
#include <utility>

#include "jit/grouped_decode_avx512.h"
#include "jit/grouped_gemm_amx.h"
#include "jit/grouped_gemm_avx512.h"
#include "ops/poison.h"

namespace quern::inline v0 {
namespace {

// Rows up to which each block of them decodes the codes in registers, rather than all of them once
// to scratch. Decoding costs little beside the dot products of s8; measured on Granite Rapids, 2
// threads, 4096 x 4096: 64 rows 1277 GOP/s in registers, 1100 from scratch; 128 rows 1214 and 1326.
constexpr int64_t kFewS8RowsInRegisters = 64;
constexpr int64_t kFewRowsInRegisters = kMostBlockRows;
// Rows up to which level amx uses avx512 kernels: one row of W4A16 takes 346 us there and 412 in
// tiles, 3 rows 537 and 409; 8 rows of W4A8 335 and 364, 12 rows 424 and 382.
constexpr int64_t kFewS8RowsOnAvx512 = 8;
constexpr int64_t kFewBf16RowsOnAvx512 = 2;

/// The families of one Desc: amx and avx512 on weights that were decoded to scratch, avx512 on
/// packed ones.
class Families {
 public:
  Families(const ContextImpl& ctx, DType codes, const jit::GroupConfig& config,
           Invariance invariance, PackedGemmSpec* spec) noexcept
      : ctx_(ctx),
        codes_(codes),
        config_(config),
        invariance_(invariance),
        spec_(*spec),
        integer_(config.a == DType::kS8) {}

  /// M chooses between families that give the same bits. With s8 rows all do: sums of integers are
  /// exact, and groups are folded in one sequence. With bf16 rows the two avx512 ones do, and so do
  /// amx and the avx512 one that adds as tiles do.
  void add_all() {
    if (ctx_.level >= IsaLevel::kAmx) {
      add_decoded(IsaLevel::kAmx);
      if (integer_ || tile_lines() != 0 || invariance_ == Invariance::kFastest) {
        spec_.gemm.few_rows = integer_            ? kFewS8RowsOnAvx512
                              : tile_lines() != 0 ? kFewBf16RowsOnAvx512
                                                  : kFewRowsOnAvx512;
        add_packed();
      }
      return;
    }
    add_decoded(IsaLevel::kAvx512);
    spec_.gemm.few_rows = integer_ ? kFewS8RowsInRegisters : kFewRowsInRegisters;
    add_packed();
  }

 private:
  bool fma() const noexcept {
    return !integer_ && (!ctx_.features.bf16 || ctx_.features.slow_bf16_dots || tile_lines() != 0);
  }
  /// Of the avx512 family that stands in for amx; 0 where there is none, or its tiles end within a
  /// line of packed codes.
  int tile_lines() const noexcept {
    const int64_t columns = spec_.row_groups.layout.tile_depth / 2;
    if (integer_ || ctx_.level < IsaLevel::kAmx || columns == 0) return 0;
    const int64_t depths = 32 / bits_of(codes_);  // of a line of packed codes
    const int64_t lines = columns / depths;
    const bool whole = columns % depths == 0 && (lines & (lines - 1)) == 0;
    return whole ? static_cast<int>(lines) : 0;
  }
  bool widens(IsaLevel level) const noexcept { return level == IsaLevel::kAvx512 && fma(); }

  RowPreparation rows(IsaLevel level) const noexcept {
    if (integer_) return RowPreparation::kQuantize;
    if (widens(level)) return RowPreparation::kWiden;
    const RowGroups& groups = spec_.row_groups;
    const bool as_they_come = groups.in_place() && groups.sums == RowGroups::Sums::kNone;
    return as_they_come ? RowPreparation::kNone : RowPreparation::kGather;
  }

  GemmFacts facts(IsaLevel level, bool decoded) const noexcept {
    const GroupLayout& layout = spec_.row_groups.layout;
    GemmFacts f{.k = layout.depth(),
                .a_bytes = integer_        ? 1
                           : widens(level) ? 4
                                           : 2,
                .weight_bits = bits_of(codes_),
                .decoded_bits = !decoded   ? 0
                                : integer_ ? 8
                                           : 16,
                .group = std::max<int64_t>(layout.padded, GroupLayout::kLineDepth)};
    if (level == IsaLevel::kAmx) {
      f.row_step = 16;
      f.tile_bytes = static_cast<int>(std::max<int64_t>(layout.tile_depth, 8));
      f.group_steps = f.group / std::max<int64_t>(layout.tile_depth, 1) * (integer_ ? 1 : 2);
      return f;
    }
    f.group_steps = f.read_bytes(f.group) / 64;
    const jit::GroupedRegisters registers = grouped_registers(avx512_config(decoded));
    f.panel_registers = registers.panel;
    f.other_registers = registers.other;
    f.accumulators = registers.element;
    return f;
  }

  jit::GroupedGemmAvx512Config avx512_config(bool decoded) const noexcept {
    jit::GroupedGemmAvx512Config config;
    config.b = !decoded ? codes_ : integer_ ? DType::kU8 : DType::kBF16;
    config.groups = config_;
    config.fma = fma();
    config.tile_lines = tile_lines();
    config.vbmi = ctx_.features.vbmi || !jit::is_float8(config.b);
    return config;
  }

  void add_packed() { spec_.gemm.families.push_back(make_avx512(false)); }

  GemmFamily make_avx512(bool decoded) const {
    return make_family(avx512_config(decoded), IsaLevel::kAvx512, facts(IsaLevel::kAvx512, decoded),
                       rows(IsaLevel::kAvx512), ctx_.features, spec_.gemm.problem);
  }

  void add_decoded(IsaLevel level) {
    // Tiles multiply signed codes too, which leaves nothing to correct in each group's sum.
    const bool subtracts = level == IsaLevel::kAmx && integer_ && config_.zeros != Int4Zeros::kF32;
    jit::GroupedDecodeAvx512Config decode{.poison = kPoisonRegisters, .from = codes_};
    decode.vbmi = ctx_.features.vbmi || !jit::is_float8(codes_);
    if (!integer_) decode.to = DType::kBF16;
    if (subtracts) decode.to = DType::kS8;
    if (!integer_ || subtracts) decode.zeros = config_.zeros;
    GemmFamily family;
    if (level == IsaLevel::kAmx) {
      jit::GroupedGemmAmxConfig config;
      config.groups = config_;
      config.groups.subtracted = subtracts;
      if (subtracts) config.groups.wide = false;
      config.tile_depth =
          static_cast<int>(std::max<int64_t>(spec_.row_groups.layout.tile_depth, 8));
      family = make_family(config, level, facts(level, true), rows(level), ctx_.features,
                           spec_.gemm.problem);
    } else {
      family = make_avx512(true);
    }
    family.decode_name = to_string(decode);
    family.generate_decode = [decode] { return generate(decode); };
    spec_.gemm.families.push_back(std::move(family));
  }

  const ContextImpl& ctx_;
  DType codes_;
  jit::GroupConfig config_;
  Invariance invariance_;
  PackedGemmSpec& spec_;
  bool integer_;
};

}  // namespace

void use_grouped_families(const ContextImpl& ctx, DType codes, const jit::GroupConfig& config,
                          Invariance invariance, PackedGemmSpec* spec) {
  Families(ctx, codes, config, invariance, spec).add_all();
}

}  // namespace quern::inline v0
