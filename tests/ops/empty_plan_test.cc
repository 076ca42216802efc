// What nobody created, or somebody moved away, answers with a Status and never with a crash.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quern/quern.h"
#include "tests/ops/allocation_counter.h"

namespace quern {
namespace {

template <typename Op>
void expect_no_plan(const Op& op, const Status& run) {
  EXPECT_EQ(run.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(run.message().find("create()"), std::string::npos) << run.message();
  EXPECT_NE(op.explain().find("create()"), std::string::npos);
}

TEST(EmptyPlan, DefaultConstructed) {
  const QuantizeRows quantize;
  const Int8Gemm int8;
  const Bf16Gemm bf16;
  expect_no_plan(quantize, quantize.run({}));
  expect_no_plan(int8, int8.run({}, {}));
  expect_no_plan(bf16, bf16.run({}, {}));
  EXPECT_EQ(int8.scratch_bytes(7), 0u);
  EXPECT_EQ(bf16.scratch_bytes(7), 0u);
  EXPECT_EQ(int8.desc().n, 0);
  EXPECT_EQ(bf16.desc().n, 0);
  EXPECT_EQ(quantize.desc().k, 0);
  EXPECT_EQ(quantize.groups(), 1);
  EXPECT_EQ(int8.pack({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(int8.pack_gate_up({}, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bf16.pack({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bf16.pack_gate_up({}, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST(EmptyPlan, MovedFrom) {
  auto made = Int8Gemm::create(Context(), {});
  if (!made.ok()) GTEST_SKIP() << "not run: " << made.status().message();
  Int8Gemm from = *made;
  const Int8Gemm to = std::move(from);
  EXPECT_TRUE(to.run({}, {}).code() != StatusCode::kOk);  // no weights, but a plan
  EXPECT_EQ(from.run({}, {}).code(),
            StatusCode::kInvalidArgument);  // NOLINT: use after move is the test
}

TEST(EmptyPlan, HasNoLevel) {
  EXPECT_EQ(Int8Gemm().isa(), IsaLevel::kNone);
  EXPECT_EQ(Bf16Gemm().isa(), IsaLevel::kNone);
  EXPECT_EQ(QuantizeRows().isa(), IsaLevel::kNone);
}

TEST(EmptyPlan, MovedFromWeights) {
  const auto plan = Int8Gemm::create(
      Context(),
      {1, 4, Int8Activations::kDynamicS8, DType::kF32, DType::kF32, {}, Invariance::kStrict});
  if (!plan.ok()) GTEST_SKIP() << "not run: " << plan.status().message();
  const int8_t codes[4] = {1, 2, 3, 4};
  const float scale = 1, a[4] = {1, 2, 3, 4};
  float c = 7;
  auto weights = plan->pack({matrix_view(codes, 1, 4), vector_view(&scale, 1)});
  ASSERT_TRUE(weights.ok());
  const PackedWeights taken = std::move(*weights);
  EXPECT_FALSE(taken.empty());
  EXPECT_TRUE(weights->empty());  // NOLINT: use after move is the test
  Int8GemmArgs args;
  args.a = matrix_view(a, 1, 4);
  args.weights = &*weights;
  args.c = mutable_matrix_view(&c, 1, 1);
  std::vector<std::byte> scratch(plan->scratch_bytes(1));
  EXPECT_EQ(plan->run(args, scratch).message(), "invalid argument: weights is null or empty");
  EXPECT_EQ(c, 7.0f);
}

/// Nothing that can be asked of it crashes, and no op can be created from it.
void expect_unusable(const Context& ctx, StatusCode code, const std::string& cause) {
  EXPECT_EQ(ctx.status().code(), code) << ctx.status().message();
  EXPECT_NE(ctx.status().message().find(cause), std::string::npos) << ctx.status().message();
  EXPECT_EQ(Int8Gemm::create(ctx, {}).status().message(), ctx.status().message());
  EXPECT_EQ(Bf16Gemm::create(ctx, {}).status().message(), ctx.status().message());
  EXPECT_EQ(QuantizeRows::create(ctx, {}).status().message(), ctx.status().message());
  EXPECT_EQ(ctx.isa(), IsaLevel::kNone);
  EXPECT_EQ(ctx.pool().size(), 1);
  EXPECT_EQ(ctx.isa_report().level, IsaLevel::kNone);
  EXPECT_EQ(ctx.options().pool, nullptr);
  EXPECT_EQ(ctx.stats().kernels_generated, 0u);
}

TEST(UnusableContext, MovedFrom) {
  Context from;
  const Context to = std::move(from);
  EXPECT_TRUE(to.status().ok());
  // NOLINTNEXTLINE: use after move is the test
  expect_unusable(from, StatusCode::kInvalidArgument, "moved from");
  from = to;
  EXPECT_TRUE(from.status().ok()) << "assignment makes it good again";
}

class PoolOf : public ThreadPool {
 public:
  explicit PoolOf(int size) : size_(size) {}
  int size() const noexcept override { return size_; }
  void run(int, PhaseFn, void*) noexcept override {}

 private:
  int size_;
};

TEST(UnusableContext, PoolWithoutThreads) {
  for (const int size : {0, -1, -1000}) {
    PoolOf pool(size);
    expect_unusable(Context(&pool), StatusCode::kInvalidArgument,
                    "size() (" + std::to_string(size) + ") must be at least 1");
  }
  PoolOf one(1);
  EXPECT_TRUE(Context(&one).status().ok());
}

TEST(UnusableContext, NoMemory) {
  test::fail_allocations_after(0);
  const Context ctx;
  test::fail_allocations_after(-1);
  expect_unusable(ctx, StatusCode::kOutOfMemory, "no memory for a context");
}

// Every single allocation of a call fails once: the answer is a Status, and the next attempt finds
// nothing broken.
template <typename Create>
void expect_survives_want_of_memory(const char* what, Create create) {
  const Status with_memory = create(Context()).status();
  if (!with_memory.ok()) GTEST_SKIP() << "not run: " << with_memory.message();
  const Context ctx;
  int64_t n = 0;
  for (bool done = false; !done; ++n) {
    test::fail_allocations_after(n);
    const auto made = create(ctx);
    test::fail_allocations_after(-1);
    done = made.ok();
    if (done) break;
    ASSERT_EQ(made.status().code(), StatusCode::kOutOfMemory)
        << what << ", allocation " << n << ": " << made.status().message();
    ASSERT_LT(n, 100000);
  }
  EXPECT_GT(n, 3) << what << " allocates more than that";
  EXPECT_TRUE(create(ctx).ok());
}

TEST(WantOfMemory, IsAStatusInCreate) {
  expect_survives_want_of_memory("int8",
                                 [](const Context& ctx) { return Int8Gemm::create(ctx, {}); });
  expect_survives_want_of_memory("bf16",
                                 [](const Context& ctx) { return Bf16Gemm::create(ctx, {}); });
  expect_survives_want_of_memory("quantize",
                                 [](const Context& ctx) { return QuantizeRows::create(ctx, {}); });
}

TEST(WantOfMemory, IsAStatusInPack) {
  const auto plan = Bf16Gemm::create(Context(), {16, 4, DType::kF32, {}, Invariance::kStrict});
  if (!plan.ok()) GTEST_SKIP() << "not run: " << plan.status().message();
  const std::vector<bfloat16> w(64);
  for (int64_t n = 0; n < 2; ++n) {
    test::fail_allocations_after(n);
    const auto packed = plan->pack(matrix_view(w.data(), 16, 4));
    test::fail_allocations_after(-1);
    EXPECT_EQ(packed.status().code(), StatusCode::kOutOfMemory) << n;
  }
  EXPECT_TRUE(plan->pack(matrix_view(w.data(), 16, 4)).ok());
}

TEST(UnknownEnums, AreRefusedNotTakenForTheDefault) {
  Int8GemmDesc int8;
  int8.epilogue.activation = static_cast<Activation>(2);
  const Status activation = Int8Gemm::create(Context(), int8).status();
  EXPECT_EQ(activation.message(),
            "invalid argument: desc.epilogue.activation (2) must be kNone (0) or kSiluMul (1)");
  Bf16GemmDesc bf16;
  bf16.invariance = static_cast<Invariance>(7);
  const Status invariance = Bf16Gemm::create(Context(), bf16).status();
  EXPECT_EQ(invariance.message(),
            "invalid argument: desc.invariance (7) must be kStrict (0) or kFastest (1)");
}

}  // namespace
}  // namespace quern
