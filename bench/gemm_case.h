#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/check.h"
#include "bench/cold_weights.h"
#include "bench/op_case.h"
#include "bench/operands.h"

namespace quern::bench {

/// What every GEMM-shaped op shares: operands by seed, packed copies that rotate, the check of
/// sampled blocks, the work. `Traits` is what is the op's own:
///   types      Op, Args, ReferenceArgs
///   Weights    unpacked operands: Weights(problem, rows, seed), view() for pack(), columns(block)
///              for the reference
///   Extra      operands of A beyond A itself: Extra(problem), put(&args), put(block, &args)
///   functions  desc_of(problem), exact(desc, args), peak(problem)
template <typename Traits>
class GemmCase final : public OpCase {
 public:
  using Op = typename Traits::Op;
  using Call = std::function<Status(const Op&, const typename Traits::Args&, Span<std::byte>)>;

  GemmCase(const Problem& p, const CaseEnv& env, Call call)
      : problem_(p),
        memory_(env.memory),
        silu_(p.epilogue.activation == Activation::kSiluMul),
        plan_(created(Op::create(env.context, Traits::desc_of(p)))),
        call_(std::move(call)),
        gate_(p, p.n, 11),
        up_(p, silu_ ? p.n : 0, 13),
        a_(filled(p.m, p.k, p.a, 1)),
        extra_(p),
        bias_(filled(1, silu_ ? 2 * p.n : p.n, DType::kF32, 3)),
        residual_(filled(p.m, p.n, p.c, 4)),
        c_(p.m, p.n, p.c),
        scratch_(plan_.scratch_bytes(p.m)),
        weights_(make_copies(
            p.cold, memory_.cold_bytes, [this] { return pack(); },
            [](const PackedWeights& w) { return w.bytes(); })) {
    args_.a = a_.view();
    extra_.put(&args_);
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
  std::string explain() const override { return plan_.explain(); }
  int64_t copies() const override { return weights_.size(); }

  Work work() const override {
    return work_of_products(problem_, silu_ ? 2 : 1, weights_.at(0).bytes(), Traits::peak(problem_),
                            memory_);
  }

 private:
  PackedWeights pack() const {
    return created(silu_ ? plan_.pack_gate_up(gate_.view(), up_.view()) : plan_.pack(gate_.view()));
  }

  reference::Exact exact(const Block& b) const {
    auto desc = Traits::desc_of(problem_);
    desc.n = b.cols;
    typename Traits::ReferenceArgs args;
    args.a = part_of(args_.a, b.row, b.rows, 0, problem_.k);
    extra_.put(b, &args);
    args.weights = gate_.columns(b);
    if (silu_) args.up_weights = up_.columns(b);
    args.c = c_.mutable_view();  // only its type is read
    const Matrix bias = bias_columns(bias_, b.col, b.cols, problem_.n, silu_);
    if (desc.epilogue.bias) args.bias = bias.vector();
    args.residual = part_of(args_.residual, b.row, b.rows, b.col, b.cols);
    return Traits::exact(desc, args);
  }

  const Problem problem_;
  const MemoryPlan memory_;
  const bool silu_;
  const Op plan_;
  const Call call_;
  const typename Traits::Weights gate_;
  const typename Traits::Weights up_;
  const Matrix a_;
  const typename Traits::Extra extra_;
  const Matrix bias_;
  const Matrix residual_;
  const Matrix c_;
  const Buffer scratch_;
  const ColdRotation<PackedWeights> weights_;
  typename Traits::Args args_;
};

}  // namespace quern::bench
