#include "tests/ops/quantize_case.h"

#include "quern/problem.h"
#include "reference/quantize_rows.h"
#include "tests/support/compare.h"

namespace quern::test {

void vary(QuantizeCase& c, uint64_t variant) {
  Rng rng(variant);
  c.seed = rng.next();
  c.a = rng.one_in(2) ? DType::kF32 : DType::kBF16;
  c.fill = draw_fill(rng);
  c.group = rng.pick(std::initializer_list<int64_t>{0, 0, 1, 3, 16, 32, 64, 100, 128, 1000});
  c.sums = !rng.one_in(4);
  c.a_pad = draw_pad(rng);
  c.q_pad = draw_pad(rng);
  c.sums_pad = draw_pad(rng);
  draw_placement(c, rng);
}

QuantizeCase random_quantize_case(uint64_t seed) {
  Rng rng(seed);
  QuantizeCase c;
  c.m = rng.in(rng.one_in(20) ? 0 : 1, 12);
  c.k = rng.one_in(10) ? rng.in(0, 3000) : rng.in(rng.one_in(20) ? 0 : 1, 300);
  vary(c, rng.next());
  return c;
}

std::string to_string(const QuantizeCase& c) {
  Problem p;
  p.op = "quantize_rows";
  p.m = c.m;
  p.k = c.k;
  p.group = c.group;
  p.a = c.a;
  return to_string(p) + " fill:" + to_string(c.fill) + (c.sums ? "" : " no sums") +
         " pads a:" + std::to_string(c.a_pad) + " q:" + std::to_string(c.q_pad) +
         " sums:" + std::to_string(c.sums_pad) + placement_and_seed(c);
}

QuantizeData::QuantizeData(const QuantizeCase& c) {
  const Placement at{c.flush, c.offset};
  a = TestMatrix(c.a, c.m, c.k, c.a_pad, at);
  q = TestMatrix(DType::kS8, c.m, c.k, c.q_pad, at);
  scale = TestMatrix(DType::kF32, 1, c.m, 0, at);
  sums = TestMatrix(DType::kS32, c.m, c.groups(), c.sums_pad, at);
  Rng rng(c.seed);
  fill_operand(a, rng, c.fill, 200);
  // One row in four of an extreme case holds something that is not finite; one in eight is all
  // zero.
  for (int64_t i = 0; c.fill == Fill::kExtreme && c.k > 0 && i < c.m; ++i) {
    if (rng.one_in(4)) a.set(i, rng.in(0, c.k - 1), rng.pick(kNonFinite));
    if (rng.one_in(8)) a.set_row(i, 0);
  }
}

QuantizeRowsArgs QuantizeData::args(const QuantizeCase& c) {
  QuantizeRowsArgs args{a.view(), q.mutable_view(), scale.mutable_vector(), {}};
  if (c.sums) args.sums = sums.mutable_view();
  return args;
}

Result<QuantizeRows> make_quantize(const Context& ctx, const QuantizeCase& c) {
  return QuantizeRows::create(ctx, {c.k, c.a, c.group});
}

::testing::AssertionResult matches_reference(const QuantizeCase& c, QuantizeData& data) {
  QuantizeCase dense = c;
  dense.q_pad = dense.sums_pad = 0;
  QuantizeData expected(dense);
  QuantizeRowsArgs args = expected.args(c);
  args.a = data.a.view();
  const Status s = reference::quantize_rows({c.k, c.a, c.group}, args);
  if (!s.ok()) return ::testing::AssertionFailure() << s.text();

  const std::string name = to_string(c);
  auto result = same_bits(data.q.view(), expected.q.view(), name + " (q)");
  if (result) result = same_bits(data.scale.view(), expected.scale.view(), name + " (scale)");
  if (result && c.sums)
    result = same_bits(data.sums.view(), expected.sums.view(), name + " (sums)");
  if (!result) return result;
  if (!data.q.surroundings_intact() || !data.scale.surroundings_intact() ||
      !data.sums.surroundings_intact()) {
    return ::testing::AssertionFailure() << "wrote beside an output, case: " << name;
  }
  return result;
}

::testing::AssertionResult check_case(const Context& ctx, const QuantizeCase& c) {
  QuantizeData data(c);
  data.a.buffer().make_read_only();
  const Result<QuantizeRows> op = make_quantize(ctx, c);
  if (!op.ok()) return ::testing::AssertionFailure() << op.status().message() << to_string(c);
  if (op->groups() != c.groups()) {
    return ::testing::AssertionFailure() << "groups " << op->groups() << to_string(c);
  }
  const Status s = op->run(data.args(c));
  if (!s.ok()) return ::testing::AssertionFailure() << s.message() << to_string(c);
  return matches_reference(c, data);
}

}  // namespace quern::test
