#include "bench/check.h"
#include "bench/cold_weights.h"
#include "bench/op_case.h"
#include "bench/operands.h"
#include "reference/int8_gemm.h"

namespace quern::bench {
namespace {

constexpr double kScale = 0.01;  // of weights and of s8 activations

Matrix filled_scale(int64_t count, uint64_t seed) {
  Matrix m(1, count, DType::kF32);
  fill_positive(m, seed, kScale);
  return m;
}

struct WeightPart {
  WeightPart(int64_t n, int64_t k, uint64_t seed)
      : codes(filled(n, k, DType::kS8, seed)), scale(filled_scale(n, seed + 1)) {}
  Int8Weights view() const { return {codes.view(), scale.vector()}; }
  Matrix codes;
  Matrix scale;
};

Int8GemmDesc desc_of(const Problem& p) {
  Int8GemmDesc desc;
  desc.n = p.n;
  desc.k = p.k;
  desc.activations = p.activations;
  desc.a = p.a;
  desc.c = p.c;
  desc.epilogue = p.epilogue;
  return desc;
}

Int8Gemm plan_of(const Problem& p, const Context& ctx) {
  Result<Int8Gemm> plan = Int8Gemm::create(ctx, desc_of(p));
  if (!plan.ok()) throw CaseError(plan.status().message());
  return *plan;
}

class Int8Case final : public OpCase {
 public:
  Int8Case(const Problem& p, const Context& ctx, Int8Call call)
      : problem_(p),
        silu_(p.epilogue.activation == Activation::kSiluMul),
        plan_(plan_of(p, ctx)),
        call_(std::move(call)),
        gate_(p.n, p.k, 11),
        up_(silu_ ? p.n : 0, p.k, 13),
        a_(filled(p.m, p.k, p.a, 1)),
        a_scale_(filled_scale(p.m, 2)),
        bias_(filled(1, silu_ ? 2 * p.n : p.n, DType::kF32, 3)),
        residual_(filled(p.m, p.n, p.c, 4)),
        c_(p.m, p.n, p.c),
        scratch_(plan_.scratch_bytes(p.m)),
        weights_(packed_copies()) {
    args_.a = a_.view();
    if (p.activations == Int8Activations::kS8) args_.a_scale = a_scale_.vector();
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
    work.peak = problem_.activations == Int8Activations::kBF16 ? Peak::kBf16 : Peak::kInt8;
    work.from_memory = comes_from_memory(work.bytes, problem_.cold);
    return work;
  }

 private:
  PackedWeights pack() const {
    Result<PackedWeights> packed =
        silu_ ? plan_.pack_gate_up(gate_.view(), up_.view()) : plan_.pack(gate_.view());
    if (!packed.ok()) throw CaseError(packed.status().message());
    return *packed;
  }

  ColdRotation<PackedWeights> packed_copies() const {
    std::vector<PackedWeights> copies = {pack()};
    const int64_t count = copies_for(copies[0].bytes(), problem_.cold);
    while (static_cast<int64_t>(copies.size()) < count) copies.push_back(pack());
    return ColdRotation<PackedWeights>(std::move(copies));
  }

  reference::Exact exact(const Block& b) const {
    Int8GemmDesc desc = desc_of(problem_);
    desc.n = b.cols;
    reference::Int8GemmArgs args;
    args.a = part_of(args_.a, b.row, b.rows, 0, problem_.k);
    args.a_scale = part_of(args_.a_scale, b.row, b.rows);
    args.weights = columns(gate_.view(), b);
    if (silu_) args.up_weights = columns(up_.view(), b);
    args.c = c_.mutable_view();  // only its type is read
    const Matrix bias = bias_columns(bias_, b.col, b.cols, problem_.n, silu_);
    if (desc.epilogue.bias) args.bias = bias.vector();
    args.residual = part_of(args_.residual, b.row, b.rows, b.col, b.cols);
    return reference::int8_gemm_exact(desc, args);
  }

  Int8Weights columns(const Int8Weights& w, const Block& b) const {
    return {part_of(w.codes, b.col, b.cols, 0, problem_.k), part_of(w.scale, b.col, b.cols)};
  }

  const Problem problem_;
  const bool silu_;
  const Int8Gemm plan_;
  const Int8Call call_;
  const WeightPart gate_;
  const WeightPart up_;
  const Matrix a_;
  const Matrix a_scale_;
  const Matrix bias_;
  const Matrix residual_;
  const Matrix c_;
  const Buffer scratch_;
  const ColdRotation<PackedWeights> weights_;
  Int8GemmArgs args_;
};

}  // namespace

std::unique_ptr<OpCase> make_int8_case(const Problem& problem, const Context& ctx, Int8Call call) {
  return std::make_unique<Int8Case>(problem, ctx, std::move(call));
}

}  // namespace quern::bench
