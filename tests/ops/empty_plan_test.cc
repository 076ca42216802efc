// What nobody created, or somebody moved away, answers with a Status and never with a crash.
#include <gtest/gtest.h>

#include <utility>

#include "quern/quern.h"

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

TEST(UnknownEnums, AreRefusedNotTakenForTheDefault) {
  Int8GemmDesc int8;
  int8.epilogue.activation = static_cast<Activation>(2);
  const Status activation = Int8Gemm::create(Context(), int8).status();
  EXPECT_EQ(activation.message(), "invalid argument: desc.epilogue.activation (2) is unknown");
  Bf16GemmDesc bf16;
  bf16.invariance = static_cast<Invariance>(7);
  const Status invariance = Bf16Gemm::create(Context(), bf16).status();
  EXPECT_EQ(invariance.message(), "invalid argument: desc.invariance (7) is unknown");
}

}  // namespace
}  // namespace quern
