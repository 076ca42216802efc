#include <cmath>

#include "bench/check.h"
#include "bench/cold_weights.h"
#include "bench/op_case.h"
#include "bench/operands.h"
#include "reference/bf16_gemm.h"

namespace quern::bench {
namespace {

Bf16GemmDesc desc_of(const Problem& p) {
  Bf16GemmDesc desc;
  desc.n = p.n;
  desc.k = p.k;
  desc.c = p.c;
  desc.epilogue = p.epilogue;
  return desc;
}

/// Results of order one, whatever the depth.
double weight_scale(const Problem& p) {
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(p.k, 1)));
}

Bf16Gemm plan_of(const Problem& p, const Context& ctx) {
  Result<Bf16Gemm> plan = Bf16Gemm::create(ctx, desc_of(p));
  if (!plan.ok()) throw CaseError(plan.status().message());
  return *plan;
}

class Bf16Case final : public OpCase {
 public:
  Bf16Case(const Problem& p, const Context& ctx, Bf16Call call)
      : problem_(p),
        silu_(p.epilogue.activation == Activation::kSiluMul),
        plan_(plan_of(p, ctx)),
        call_(std::move(call)),
        gate_(filled(p.n, p.k, DType::kBF16, 11, weight_scale(p))),
        up_(filled(silu_ ? p.n : 0, p.k, DType::kBF16, 13, weight_scale(p))),
        a_(filled(p.m, p.k, DType::kBF16, 1)),
        bias_(filled(1, silu_ ? 2 * p.n : p.n, DType::kF32, 3)),
        residual_(filled(p.m, p.n, p.c, 4)),
        c_(p.m, p.n, p.c),
        scratch_(plan_.scratch_bytes(p.m)),
        weights_(packed_copies()) {
    args_.a = a_.view();
    args_.c = c_.mutable_view();
    if (p.epilogue.bias) args_.bias = bias_.vector();
    if (p.epilogue.residual) args_.residual = residual_.view();
  }

  Status run(int64_t call) override {
    args_.weights = &weights_.at(call);
    const Span<std::byte> scratch(scratch_.data(), scratch_.bytes().size());
    return call_ ? call_(plan_, args_, scratch) : plan_.run(args_, scratch);
  }

  CheckResult check() const override {
    const std::vector<Block> blocks = sample_blocks(problem_.m, problem_.n, problem_.k);
    return check_blocks(c_.view(), blocks, [this](const Block& b) { return exact(b); });
  }

  std::span<const std::byte> output() const override { return c_.buffer.bytes(); }
  std::string kernel() const override { return kernel_name(plan_.explain(), problem_.m); }
  int64_t copies() const override { return weights_.size(); }

  Work work() const override {
    Work work;
    const double parts = silu_ ? 2 : 1;
    work.ops = 2 * parts * static_cast<double>(problem_.m) * static_cast<double>(problem_.n) *
               static_cast<double>(problem_.k);
    work.bytes = static_cast<double>(weights_.at(0).bytes());
    work.peak = Peak::kBf16;
    work.from_memory = comes_from_memory(work.bytes, problem_.cold);
    return work;
  }

 private:
  ColdRotation<PackedWeights> packed_copies() const {
    std::vector<PackedWeights> copies = {pack()};
    const int64_t count = copies_for(copies[0].bytes(), problem_.cold);
    while (static_cast<int64_t>(copies.size()) < count) copies.push_back(pack());
    return ColdRotation<PackedWeights>(std::move(copies));
  }

  PackedWeights pack() const {
    Result<PackedWeights> packed =
        silu_ ? plan_.pack_gate_up(gate_.view(), up_.view()) : plan_.pack(gate_.view());
    if (!packed.ok()) throw CaseError(packed.status().message());
    return *packed;
  }

  reference::Exact exact(const Block& b) const {
    Bf16GemmDesc desc = desc_of(problem_);
    desc.n = b.cols;
    reference::Bf16GemmArgs args;
    args.a = part_of(args_.a, b.row, b.rows, 0, problem_.k);
    args.weights = part_of(gate_.view(), b.col, b.cols, 0, problem_.k);
    if (silu_) args.up_weights = part_of(up_.view(), b.col, b.cols, 0, problem_.k);
    args.c = c_.mutable_view();  // only its type is read
    const Matrix bias = bias_columns(bias_, b.col, b.cols, problem_.n, silu_);
    if (desc.epilogue.bias) args.bias = bias.vector();
    args.residual = part_of(args_.residual, b.row, b.rows, b.col, b.cols);
    return reference::bf16_gemm_exact(desc, args);
  }

  const Problem problem_;
  const bool silu_;
  const Bf16Gemm plan_;
  const Bf16Call call_;
  const Matrix gate_;
  const Matrix up_;
  const Matrix a_;
  const Matrix bias_;
  const Matrix residual_;
  const Matrix c_;
  const Buffer scratch_;
  const ColdRotation<PackedWeights> weights_;
  Bf16GemmArgs args_;
};

}  // namespace

std::unique_ptr<OpCase> make_bf16_case(const Problem& problem, const Context& ctx, Bf16Call call) {
  return std::make_unique<Bf16Case>(problem, ctx, std::move(call));
}

}  // namespace quern::bench
