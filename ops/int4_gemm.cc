#include "quern/int4_gemm.h"

#include <utility>

#include "jit/grouped_decode_avx512.h"
#include "jit/grouped_gemm_amx.h"
#include "jit/grouped_gemm_avx512.h"
#include "ops/int4_packing.h"
#include "ops/no_throw.h"
#include "ops/packed_gemm.h"
#include "ops/poison.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] Int4Gemm::Impl {
  Int4GemmDesc desc;
  PackedGemm gemm;
  Int4PackKernels pack_kernels;

  Int4PackSpec pack_spec() const noexcept {
    return {desc.n, desc.k, desc.group, desc.zeros, desc.scale, desc.act_order};
  }
  Status check_weights(const Int4Weights& w, WeightPart part) const noexcept {
    return check_int4_weights(w, pack_spec(), part);
  }
  Result<PackedWeights> pack(Span<const Int4Weights> parts, const PackProgress& progress) const {
    return pack_int4(pack_kernels, gemm.pool(), pack_spec(), parts, progress);
  }
};

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

Status check(const Int4GemmDesc& desc) noexcept {
  if (const Status s = check_gemm_desc(desc, kMaxInt4K); !s.ok()) return s;
  if (desc.group != -1) {
    if (desc.group < 1) {
      return Status(StatusCode::kInvalidArgument,
                    "desc.group ({0}) must be at least 1, or -1 for all of k", desc.group);
    }
  }
  if (const Status s =
          check_dtype(desc.scale, "desc.scale", {DType::kF16, DType::kBF16, DType::kF32});
      !s.ok()) {
    return s;
  }
  if (desc.zeros > Int4Zeros::kF32) {
    return Status(StatusCode::kInvalidArgument,
                  "desc.zeros ({0}) must be kSymmetric (0), kInteger (1) or kF32 (2)",
                  static_cast<int64_t>(desc.zeros));
  }
  if (desc.activations > Int4Activations::kDynamicS8) {
    return Status(StatusCode::kInvalidArgument,
                  "desc.activations ({0}) must be kBF16 (0) or kDynamicS8 (1)",
                  static_cast<int64_t>(desc.activations));
  }
  return {};
}

/// With g_idx each group may leave one part of less than `group` columns, beside the whole ones.
GroupLayout longest_layout(const Int4GemmDesc& desc) noexcept {
  const GroupLayout even(desc.k, desc.group);
  if (!desc.act_order || even.groups == 0) return even;
  return GroupLayout(desc.k, desc.group, even.groups + desc.k / even.group);
}

jit::GroupConfig group_config(const Int4GemmDesc& desc, const GroupLayout& layout) noexcept {
  jit::GroupConfig config;
  config.a = desc.activations == Int4Activations::kDynamicS8 ? DType::kS8 : DType::kBF16;
  config.scale = desc.scale;
  config.zeros = desc.zeros;
  config.wide = config.a == DType::kS8 && desc.zeros == Int4Zeros::kInteger &&
                layout.group > jit::kMostNarrowGroup;
  return config;
}

RowGroups row_groups(const Int4GemmDesc& desc, const jit::GroupConfig& config) noexcept {
  RowGroups rows;
  rows.layout = longest_layout(desc);
  rows.ordered = desc.act_order;
  if (config.folds_nothing()) return rows;
  rows.sums = desc.zeros == Int4Zeros::kSymmetric ? RowGroups::Sums::kTimesMinus8
              : config.wide                       ? RowGroups::Sums::kS32
                                                  : RowGroups::Sums::kF32;
  return rows;
}

/// The families of one Desc: amx and avx512 on weights that were decoded to scratch, avx512 on
/// packed ones.
class Families {
 public:
  Families(const ContextImpl& ctx, const Int4GemmDesc& desc, PackedGemmSpec* spec) noexcept
      : ctx_(ctx),
        desc_(desc),
        spec_(*spec),
        config_(group_config(desc, spec->row_groups.layout)),
        integer_(config_.a == DType::kS8) {}

  /// M chooses between families that give the same bits. With s8 rows all do: sums of integers are
  /// exact, and groups are folded in one sequence. With bf16 rows the two avx512 ones do, and so do
  /// amx and the avx512 one that adds as tiles do.
  void add_all() {
    if (ctx_.level >= IsaLevel::kAmx) {
      add_decoded(IsaLevel::kAmx);
      if (integer_ || tile_lines() != 0 || desc_.invariance == Invariance::kFastest) {
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
    const int64_t lines = columns / GroupLayout::kLineDepth;
    const bool whole = columns % GroupLayout::kLineDepth == 0 && lines != 3;
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
                .weight_bits = 4,
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
    config.b = !decoded ? DType::kU4 : integer_ ? DType::kU8 : DType::kBF16;
    config.groups = config_;
    config.fma = fma();
    config.tile_lines = tile_lines();
    return config;
  }

  void add_packed() { spec_.gemm.families.push_back(make_avx512(false)); }

  GemmFamily make_avx512(bool decoded) const {
    return make_family(avx512_config(decoded), IsaLevel::kAvx512, facts(IsaLevel::kAvx512, decoded),
                       rows(IsaLevel::kAvx512), ctx_.features, spec_.gemm.problem);
  }

  void add_decoded(IsaLevel level) {
    // Tiles multiply signed codes too, which leaves nothing to correct in each group's sum.
    const bool subtracts = level == IsaLevel::kAmx && integer_ && desc_.zeros != Int4Zeros::kF32;
    jit::GroupedDecodeAvx512Config decode{.poison = kPoisonRegisters};
    if (!integer_) decode.to = DType::kBF16;
    if (subtracts) decode.to = DType::kS8;
    if (!integer_ || subtracts) decode.zeros = desc_.zeros;
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
  const Int4GemmDesc& desc_;
  PackedGemmSpec& spec_;
  jit::GroupConfig config_;
  bool integer_;
};

PackedGemmSpec make_spec(const Int4GemmDesc& desc) {
  PackedGemmSpec spec;
  Problem& problem = spec.gemm.problem = gemm_problem("int4_gemm", desc);
  problem.group = std::max<int64_t>(desc.group, 0);  // all of K: not named
  problem.activations = desc.activations == Int4Activations::kDynamicS8
                            ? Int8Activations::kDynamicS8
                            : Int8Activations::kBF16;
  problem.zeros = desc.zeros;
  problem.scale = desc.scale;
  problem.act_order = desc.act_order;
  spec.layout = spec.gemm.gate_up() ? WeightLayout::kU4Vnni8N16GateUp : WeightLayout::kU4Vnni8N16;
  const GroupLayout even(desc.k, desc.group);
  spec.weight_groups =
      WeightGroups{even.group, even.groups, desc.scale, desc.zeros, desc.act_order};
  spec.row_groups = row_groups(desc, group_config(desc, even));
  return spec;
}

}  // namespace

Result<Int4Gemm> Int4Gemm::create(const Context& ctx, const Int4GemmDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&]() -> Result<Int4Gemm> {
    if (const Status s = ctx.status(); !s.ok()) return s;
    if (const Status s = check(desc); !s.ok()) return s;
    PackedGemmSpec spec = make_spec(desc);
    Families(ctx.impl(), desc, &spec).add_all();
    auto gemm = PackedGemm::create(ctx, std::move(spec));
    if (!gemm.ok()) return gemm.status();
    auto pack_kernels = int4_pack_kernels(ctx.impl());
    if (!pack_kernels.ok()) return pack_kernels.status();
    Int4Gemm op;
    op.impl_ = std::make_shared<const Impl>(Impl{desc, std::move(*gemm), std::move(*pack_kernels)});
    return op;
  });
}

IsaLevel Int4Gemm::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->gemm.isa();
}

const Int4GemmDesc& Int4Gemm::desc() const noexcept {
  static const Int4GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Result<PackedWeights> Int4Gemm::pack(const Int4Weights& w, const PackProgress& progress) const {
  return pack_parts(impl_.get(), Span<const Int4Weights>(&w, 1), progress);
}

Result<PackedWeights> Int4Gemm::pack_gate_up(const Int4Weights& gate, const Int4Weights& up,
                                             const PackProgress& progress) const {
  const Int4Weights parts[] = {gate, up};
  return pack_parts(impl_.get(), Span<const Int4Weights>(parts, 2), progress);
}

size_t Int4Gemm::scratch_bytes(int64_t max_m) const noexcept {
  return impl_ == nullptr ? 0 : impl_->gemm.scratch_bytes(max_m);
}

Status Int4Gemm::run(const Int4GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  return impl_->gemm.run({args.a, {}, {args.weights, args.c, args.bias, args.residual}}, scratch);
}

std::string Int4Gemm::explain() const {
  return impl_ == nullptr ? no_plan().message() : impl_->gemm.explain();
}

}  // namespace quern::inline v0
