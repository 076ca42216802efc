#include "quern/int4_gemm.h"

#include <utility>

#include "jit/gemm_config.h"
#include "ops/grouped_families.h"
#include "ops/int4_packing.h"
#include "ops/no_throw.h"
#include "ops/packed_gemm.h"

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

Status check(const Int4GemmDesc& desc) noexcept {
  if (const Status s = check_gemm_desc(desc, kMaxGroupedK); !s.ok()) return s;
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

PackedGemmSpec make_spec(const Int4GemmDesc& desc) {
  PackedGemmSpec spec;
  Problem& problem = spec.gemm.problem = gemm_problem("int4_gemm", desc);
  problem.group = named_block(desc.group, desc.k);
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
    use_grouped_families(ctx.impl(), DType::kU4, group_config(desc, spec.row_groups.layout),
                         desc.invariance, &spec);
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
