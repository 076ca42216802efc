// reliability.md, A8: the host's floating-point control words are its own. Neither making a
// context, a plan or packed weights nor a call changes MXCSR or the x87 control word, under all
// four settings of FTZ and DAZ; a call does not even leave exception flags behind.
#include <xmmintrin.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "quern/thread_pool.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/quantize_case.h"

namespace quern::test {
namespace {

struct ControlWords {
  uint32_t mxcsr = 0x1f80;
  uint16_t x87 = 0x037f;

  static ControlWords now() {
    ControlWords words;
    words.mxcsr = _mm_getcsr();
    __asm__ volatile("fnstcw %0" : "=m"(words.x87));
    return words;
  }
  void set() const {
    _mm_setcsr(mxcsr);
    __asm__ volatile("fldcw %0" : : "m"(x87));
  }
  /// Without the flags that arithmetic raises.
  ControlWords controls() const { return {mxcsr & ~0x3fu, x87}; }
  bool operator==(const ControlWords&) const = default;
};

void PrintTo(const ControlWords& words, std::ostream* out) {
  *out << std::hex << "mxcsr " << words.mxcsr << " x87 " << words.x87;
}

/// Double precision and rounding down on the x87, as some hosts have it.
const ControlWords kHosts[] = {{0x1f80, 0x027f},
                               {0x1f80 | 0x8000, 0x067f},
                               {0x1f80 | 0x0040, 0x037f},
                               {0x1f80 | 0x8040 | 0x2000, 0x0f7f}};

/// What the words are after `body` ran under `host`. gtest's own arithmetic stays outside.
template <typename Body>
ControlWords after(const ControlWords& host, const Body& body) {
  const ControlWords ours = ControlWords::now();
  host.set();
  body();
  const ControlWords left = ControlWords::now();
  ours.set();
  return left;
}

using HostStateTest = GemmTest;

TEST_P(HostStateTest, EveryStepLeavesTheControlWords) {
  auto pool = PersistentPool::create(2);
  ASSERT_TRUE(pool.ok());
  GemmCase c = make_case(kind(), "m:7/n:333/k:300");
  c.fill = Fill::kExtreme;
  for (ThreadPool* threads : std::initializer_list<ThreadPool*>{nullptr, pool->get()}) {
    for (const ControlWords& host : kHosts) {
      GemmData data(c);
      Context ctx;
      EXPECT_EQ(after(host, [&] { ctx = context_at(isa(), threads); }).controls(), host);
      Result<GemmOp> op = Status(StatusCode::kInternal, "not made");
      EXPECT_EQ(after(host, [&] { op = GemmOp::create(ctx, c); }).controls(), host);
      ASSERT_TRUE(op.ok()) << op.status().message();
      Status status;
      EXPECT_EQ(after(host, [&] { status = op->pack(data); }).controls(), host);
      ASSERT_TRUE(status.ok()) << status.message();
      std::vector<std::byte> scratch(op->scratch_bytes(c.problem.m));
      const GemmOp::Args args = args_of(c, data);
      EXPECT_EQ(after(host, [&] { status = op->run(args, scratch); }), host);
      EXPECT_TRUE(status.ok()) << status.message();
      GemmOp::Args wrong = args;
      wrong.a.cols += 1;
      EXPECT_EQ(after(host, [&] { status = op->run(wrong, scratch); }), host);
      EXPECT_FALSE(status.ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, HostStateTest, every_gemm(), gemm_test_name);

class QuantizeHostStateTest : public IsaTest {};

TEST_P(QuantizeHostStateTest, EveryStepLeavesTheControlWords) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    QuantizeCase c;
    c.m = 5;
    c.k = 333;
    c.group = 64;
    c.a = type;
    c.fill = Fill::kExtreme;
    for (const ControlWords& host : kHosts) {
      QuantizeData data(c);
      Result<QuantizeRows> op = Status(StatusCode::kInternal, "not made");
      EXPECT_EQ(
          after(host,
                [&] { op = QuantizeRows::create(ctx(), {.k = c.k, .a = c.a, .group = c.group}); })
              .controls(),
          host);
      ASSERT_TRUE(op.ok()) << op.status().message();
      const QuantizeRowsArgs args = data.args(c);
      Status status;
      EXPECT_EQ(after(host, [&] { status = op->run(args); }), host);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, QuantizeHostStateTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
