#include "tests/ops/gemm_case.h"
#include "tests/support/compare.h"

namespace quern::test {
::testing::AssertionResult check_case(const Context& ctx, const GemmCase& c) {
  GemmData data(c);
  return check_case(ctx, c, data);
}

::testing::AssertionResult check_case(const Context& ctx, const GemmCase& c, GemmData& data) {
  Result<GemmOp> op = GemmOp::create(ctx, c);
  if (!op.ok()) return refused("create", op.status(), to_string(c));
  const reference::Exact exact = exact_answer(c, data);
  // Two system calls an operand cost more than a small GEMM: one case in four will do.
  if (c.seed % 4 == 0) data.protect_inputs();
  if (const Status s = op->pack(data); !s.ok()) return refused("pack", s, to_string(c));
  if (const Status s = op->run(args_of(c, data)); !s.ok()) return refused("run", s, to_string(c));

  ::testing::AssertionResult values = within(data.c.view(), exact, to_string(c));
  if (!values) return values << op->explain();
  ::testing::AssertionResult around = data.surroundings_intact();
  if (!around) return around << "\n  case: " << to_string(c) << "\n";
  return ::testing::AssertionSuccess();
}

std::vector<uint32_t> output_bits(const GemmOp& op, const GemmCase& c, GemmData& data,
                                  unsigned char poison) {
  const Status status = op.run(args_of(c, data), poison);
  EXPECT_TRUE(status.ok()) << status.message() << " " << to_string(c);
  if (!status.ok()) return {};
  EXPECT_TRUE(data.surroundings_intact()) << to_string(c);
  return element_bits(data.c.view());
}

std::vector<uint32_t> bits_in(const Context& ctx, const GemmCase& c) {
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return {};
  const Status packed = op->pack(data);
  EXPECT_TRUE(packed.ok()) << packed.message();
  return output_bits(*op, c, data);
}

}  // namespace quern::test
