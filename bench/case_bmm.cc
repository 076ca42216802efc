#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "bench/check.h"
#include "bench/cold_weights.h"
#include "bench/op_case.h"
#include "bench/operands.h"
#include "reference/bmm.h"

namespace quern::bench {
namespace {

BmmDesc desc_of(const Problem& p) {
  BmmDesc desc;
  desc.n = p.n;
  desc.k = p.k;
  desc.b = p.b;
  desc.c = p.c;
  return desc;
}

Matrix stored_b(const Problem& p) {
  const bool kn = p.b == BmmOperand::kPlainKN;
  const int64_t rows = p.batch * (kn ? p.k : p.n), cols = kn ? p.n : p.k;
  constexpr uint64_t kSeed = 11;
  if (p.b == BmmOperand::kE4M3) return finite_codes(rows, cols, DType::kE4M3, kSeed);
  const DType type = p.b == BmmOperand::kS8 ? DType::kS8 : DType::kBF16;
  return filled(rows, cols, type, kSeed, scale_for_depth(p.k));
}

/// What turns with the calls: packed weights, or plain matrices.
struct Operand {
  PackedWeights packed;
  std::shared_ptr<const Matrix> plain;
};

/// A and C are heads of [M, batch, K] and [M, batch, N], as a model has them.
class BmmCase final : public OpCase {
 public:
  BmmCase(const Problem& p, const CaseEnv& env, BmmCall call)
      : problem_(p),
        memory_(env.memory),
        plain_(p.b == BmmOperand::kPlainNK || p.b == BmmOperand::kPlainKN),
        kn_(p.b == BmmOperand::kPlainKN),
        plan_(created(Bmm::create(env.context, desc_of(p)))),
        call_(std::move(call)),
        a_(filled(p.m, p.batch * p.k, DType::kBF16, 1)),
        b_(std::make_shared<const Matrix>(stored_b(p))),
        scale_(p.batch, p.n, DType::kF32),
        c_(p.m, p.batch * p.n, p.c),
        scratch_(plan_.scratch_bytes(p.m)),
        operands_(make_copies(
            p.cold, memory_.cold_bytes, [this] { return copy(); },
            [this](const Operand& o) { return bytes_of(o); })) {
    args_.a = {a_.buffer.data(), DType::kBF16, p.batch, p.m, p.k, p.k, p.batch * p.k};
    args_.c = {c_.buffer.data(), p.c, p.batch, p.m, p.n, p.n, p.batch * p.n};
  }

  Status run(int64_t call) override {
    const Operand& operand = operands_.at(call);
    if (plain_) {
      args_.b = stored(*operand.plain);
    } else {
      args_.weights = &operand.packed;
    }
    const Span<std::byte> scratch(scratch_.data(), scratch_.bytes().size());
    return call_ ? call_(plan_, args_, scratch) : plan_.run(args_, scratch);
  }

  // Of each of a few matrices, both ends among them, the blocks that a GEMM of its shape is held
  // to.
  CheckResult check() const override {
    CheckResult all;
    all.total = problem_.batch * problem_.m * problem_.n;
    if (all.total == 0) return all;
    constexpr int64_t kMatrices = 5;
    std::set<int64_t> matrices;
    for (int64_t i = 0; i < kMatrices; ++i) {
      matrices.insert((problem_.batch - 1) * i / (kMatrices - 1));
    }
    for (const int64_t matrix : matrices) {
      const MatrixView c = part_of(c_.view(), 0, problem_.m, matrix * problem_.n, problem_.n);
      const CheckResult one =
          check_blocks(c, sample_blocks(problem_.m, problem_.n, problem_.k),
                       [&](const Block& block) { return exact(matrix, block); });
      all.compared += one.compared;
      all.exact = all.exact && one.exact;
      if (all.ok && !one.ok) all.detail = fmt::format("matrix {}: {}", matrix, one.detail);
      all.ok = all.ok && one.ok;
    }
    return all;
  }

  std::span<const std::byte> output() const override { return c_.buffer.bytes(); }
  std::string explain() const override { return plan_.explain(); }
  int64_t copies() const override { return operands_.size(); }

  Work work() const override {
    return work_of_products(problem_, problem_.batch, bytes_of(operands_.at(0)), Peak::kBf16,
                            memory_);
  }

 private:
  BatchView stored(const Matrix& b) const {
    const int64_t rows = kn_ ? problem_.k : problem_.n;
    return {b.buffer.data(), b.dtype, problem_.batch, rows, b.cols, rows * b.cols, b.cols};
  }

  Operand copy() const {
    if (plain_) return {{}, std::make_shared<const Matrix>(filled_like(*b_))};
    BmmWeights weights;
    weights.values = stored(*b_);
    if (problem_.b == BmmOperand::kS8 || problem_.b == BmmOperand::kE4M3) {
      fill_positive(scale_, 2, 0.01);
      weights.scale = scale_.view();
    }
    return {created(plan_.pack(weights)), nullptr};
  }
  static Matrix filled_like(const Matrix& m) {
    Matrix other(m.rows, m.cols, m.dtype);
    const auto from = m.buffer.bytes();
    std::copy(from.begin(), from.end(), other.buffer.data());
    return other;
  }
  size_t bytes_of(const Operand& o) const {
    return plain_ ? o.plain->buffer.bytes().size() : o.packed.bytes();
  }

  reference::Exact exact(int64_t matrix, const Block& block) const {
    BmmDesc desc = desc_of(problem_);
    desc.n = block.cols;
    reference::BmmArgs args;
    const auto one = [](const MatrixView& m) {
      return BatchView{m.data, m.dtype, 1, m.rows, m.cols, 0, m.row_stride};
    };
    args.a = one(part_of(a_.view(), block.row, block.rows, matrix * problem_.k, problem_.k));
    args.b.order = kn_ ? BmmOrder::kKN : BmmOrder::kNK;
    args.b.values =
        one(kn_ ? part_of(b_->view(), matrix * problem_.k, problem_.k, block.col, block.cols)
                : part_of(b_->view(), matrix * problem_.n + block.col, block.cols, 0, problem_.k));
    args.b.scale = part_of(scale_.view(), matrix, 1, block.col, block.cols);
    args.c.dtype = problem_.c;
    return reference::bmm_exact(desc, args, 0);
  }

  const Problem problem_;
  const MemoryPlan memory_;
  const bool plain_;
  const bool kn_;
  const Bmm plan_;
  const BmmCall call_;
  const Matrix a_;
  const std::shared_ptr<const Matrix> b_;
  const Matrix scale_;
  const Matrix c_;
  const Buffer scratch_;
  const ColdRotation<Operand> operands_;
  BmmArgs args_;
};

}  // namespace

std::unique_ptr<OpCase> make_bmm_case(const Problem& problem, const CaseEnv& env, BmmCall call) {
  return std::make_unique<BmmCase>(problem, env, std::move(call));
}

std::string explain_bmm(const Problem& problem, const Context& ctx) {
  return created(Bmm::create(ctx, desc_of(problem))).explain();
}

}  // namespace quern::bench
