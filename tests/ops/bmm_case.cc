#include "tests/ops/bmm_case.h"

#include <algorithm>
#include <utility>

#include "reference/bmm.h"
#include "tests/ops/fp8_operands.h"
#include "tests/support/compare.h"

namespace quern::test {
namespace {

const char* name_of(BatchForm form) {
  constexpr const char* kNames[] = {"matrices", "heads", "shared"};
  return kNames[static_cast<int>(form)];
}

}  // namespace

const char* name_of(BmmOperand b) {
  constexpr const char* kNames[] = {"bf16", "s8", "nk", "kn", "e4m3"};
  return kNames[static_cast<int>(b)];
}

BmmOrder BmmCase::stored() const {
  if (!plain()) return order;
  return problem.b == BmmOperand::kPlainKN ? BmmOrder::kKN : BmmOrder::kNK;
}

BmmDesc BmmCase::desc() const {
  return {problem.n, problem.k, problem.b, problem.c, Invariance::kStrict};
}

BmmCase make_bmm(BmmOperand b, int64_t batch, int64_t m, int64_t n, int64_t k) {
  BmmCase c;
  c.problem.op = "bmm";
  c.problem.batch = batch;
  c.problem.m = m;
  c.problem.n = n;
  c.problem.k = k;
  c.problem.b = b;
  return c;
}

void vary(BmmCase& c, uint64_t variant) {
  Rng rng(variant);
  c.seed = rng.next();
  c.fill = draw_fill(rng);
  c.problem.c = rng.one_in(2) ? DType::kF32 : DType::kBF16;
  c.scale = draw_scale_type(rng);
  c.scale_of_matrix = rng.one_in(3);
  c.order = rng.one_in(2) ? BmmOrder::kNK : BmmOrder::kKN;
  const auto form = [&rng] { return rng.one_in(2) ? BatchForm::kMatrices : BatchForm::kHeads; };
  c.a_form = rng.one_in(6) ? BatchForm::kShared : form();
  c.b_form = rng.one_in(4) ? BatchForm::kShared : form();
  c.c_form = form();
  c.a_pad = draw_pad(rng);
  c.b_pad = draw_pad(rng);
  c.c_pad = draw_pad(rng);
  c.gap = rng.one_in(2) ? 0 : rng.in(1, 3);
  draw_placement(c, rng);
}

BmmCase random_bmm(uint64_t seed) {
  Rng rng(seed);
  const auto b = rng.pick(kBmmOperands);
  const int64_t batch =
      rng.one_in(4) ? rng.in(4, 20) : rng.pick(std::initializer_list<int64_t>{0, 1, 2, 3, 17});
  const auto small = [&rng] { return rng.in(rng.one_in(20) ? 0 : 1, 24); };
  int64_t m = rng.one_in(3) ? rng.in(1, 8) : small(), n = small(), k = small();
  const int64_t most = 400 / std::max<int64_t>(batch, 2);
  switch (rng.in(0, 2)) {
    case 0:
      m = rng.in(1, most);
      break;
    case 1:
      n = rng.in(1, 3 * most);
      break;
    default:
      k = rng.in(1, 4 * most);
      break;
  }
  BmmCase c = make_bmm(b, batch, m, n, k);
  vary(c, rng.next());
  return c;
}

std::string to_string(const BmmCase& c) {
  return to_string(c.problem) + " fill:" + to_string(c.fill) + " scale:" + to_string(c.scale) +
         (c.scale_of_matrix ? "(matrix)" : "") +
         (c.stored() == BmmOrder::kNK ? " order:nk" : " order:kn") +
         " forms a:" + name_of(c.a_form) + " b:" + name_of(c.b_form) + " c:" + name_of(c.c_form) +
         " pads a:" + std::to_string(c.a_pad) + " b:" + std::to_string(c.b_pad) +
         " c:" + std::to_string(c.c_pad) + " gap:" + std::to_string(c.gap) + placement_and_seed(c);
}

BmmData::BmmData(const BmmCase& g) {
  const Problem& p = g.problem;
  Rng rng(g.seed);
  Placements places(g);
  const bool nk = g.stored() == BmmOrder::kNK;
  a = TestBatch(DType::kBF16, p.batch, p.m, p.k, g.a_form, g.a_pad, g.gap, places.next());
  b = TestBatch(g.stored_type(), p.batch, nk ? p.n : p.k, nk ? p.k : p.n, g.b_form, g.b_pad, g.gap,
                places.next());
  const bool shared = g.b_form == BatchForm::kShared;
  scale = TestMatrix(g.scale, shared ? 1 : p.batch, g.scale_of_matrix ? 1 : p.n, g.b_pad,
                     places.next());
  c = TestBatch(p.c, p.batch, p.m, p.n, g.c_form, g.c_pad, g.gap, places.next());
  const int64_t limit = exact_limit(p.k);
  fill_operand(a.store(), rng, g.fill, limit);
  if (g.stored_type() == DType::kE4M3) {
    fill_fp8(b.store(), rng, g.fill, limit);
  } else {
    fill_operand(b.store(), rng, g.fill, limit);
  }
  fill_scales(scale, rng, g.fill);
  c.store().set_all(-1);
  a.finish();
  b.finish();
  c.finish();
}

BmmWeights BmmData::weights(const BmmCase& g) const {
  BmmWeights w;
  w.values = b.view();
  w.order = g.stored();
  if (g.codes()) w.scale = scale.view();
  if (g.b_form != BatchForm::kShared) return w;
  w.values.batch = 1;
  return w;
}

void BmmData::protect_inputs() {
  for (TestMatrix* m : {&a.store(), &b.store(), &scale}) m->buffer().make_read_only();
}

Result<BmmOp> BmmOp::create(const Context& ctx, const BmmCase& c) {
  Result<Bmm> op = Bmm::create(ctx, c.desc());
  if (!op.ok()) return op.status();
  BmmOp out;
  out.op_ = std::move(*op);
  return out;
}

Status BmmOp::pack(const BmmCase& c, const BmmData& data) {
  if (c.plain()) return Status();
  Result<PackedWeights> packed = op_.pack(data.weights(c));
  if (packed.ok()) packed_ = std::move(*packed);
  return packed.status();
}

BmmArgs BmmOp::args(const BmmCase& c, BmmData& data) const {
  BmmArgs args;
  args.a = data.a.view();
  if (c.plain()) {
    args.b = data.b.view();
  } else {
    args.weights = &packed_;
  }
  args.c = data.c.mutable_view();
  return args;
}

Status BmmOp::run(const BmmArgs& args, unsigned char poison) const {
  return run_in_own_scratch(op_.scratch_bytes(args.a.rows), poison,
                            [&](Span<std::byte> scratch) { return op_.run(args, scratch); });
}

reference::Exact exact_answer(const BmmCase& g, BmmData& data, int64_t matrix) {
  reference::BmmArgs args;
  args.a = data.a.view();
  args.b = data.weights(g);
  args.b.values = data.b.view();
  if (g.b_form == BatchForm::kShared) {
    args.b.scale.rows = g.problem.batch;
    args.b.scale.row_stride = 0;
  }
  args.c = data.c.mutable_view();
  reference::Exact exact = reference::bmm_exact(g.desc(), args, matrix);
  if (g.fill == Fill::kExact) drop_bounds(exact);
  return exact;
}

::testing::AssertionResult check_bmm(const Context& ctx, const BmmCase& c) {
  BmmData data(c);
  Result<BmmOp> op = BmmOp::create(ctx, c);
  if (!op.ok()) return refused("create", op.status(), to_string(c));
  if (c.seed % 4 == 0) data.protect_inputs();
  if (const Status s = op->pack(c, data); !s.ok()) return refused("pack", s, to_string(c));
  if (const Status s = op->run(op->args(c, data)); !s.ok()) return refused("run", s, to_string(c));
  for (int64_t matrix = 0; matrix < c.problem.batch; ++matrix) {
    ::testing::AssertionResult values =
        within(data.c.matrix(matrix), exact_answer(c, data, matrix), to_string(c));
    if (!values) return values << "matrix " << matrix << "\n" << op->op().explain();
  }
  if (!data.c.surroundings_intact()) {
    return ::testing::AssertionFailure()
           << "wrote between or beside the matrices of c\n  case: " << to_string(c) << "\n";
  }
  return ::testing::AssertionSuccess();
}

std::vector<uint32_t> element_bits(const TestBatch& batch) {
  std::vector<uint32_t> bits;
  for (int64_t matrix = 0; matrix < batch.view().batch; ++matrix) {
    const std::vector<uint32_t> some = element_bits(batch.matrix(matrix));
    bits.insert(bits.end(), some.begin(), some.end());
  }
  return bits;
}

std::vector<uint32_t> output_bits(const BmmOp& op, const BmmCase& c, BmmData& data,
                                  unsigned char poison) {
  const Status status = op.run(op.args(c, data), poison);
  EXPECT_TRUE(status.ok()) << status.message() << " " << to_string(c);
  if (!status.ok()) return {};
  EXPECT_TRUE(data.c.surroundings_intact()) << to_string(c);
  return element_bits(data.c);
}

std::vector<uint32_t> bits_in(const Context& ctx, const BmmCase& c) {
  BmmData data(c);
  Result<BmmOp> op = BmmOp::create(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return {};
  const Status packed = op->pack(c, data);
  EXPECT_TRUE(packed.ok()) << packed.message();
  return output_bits(*op, c, data);
}

}  // namespace quern::test
