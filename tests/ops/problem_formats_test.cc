// The fields of problem strings that belong to one format of weights.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "quern/problem.h"

namespace quern {
namespace {

TEST(ProblemFormats, FieldsOfInt4Weights) {
  Problem p;
  p.op = "int4_gemm";
  p.m = 1;
  p.n = 4096;
  p.k = 4096;
  p.group = 128;
  EXPECT_EQ(to_string(p), "int4_gemm/m:1/n:4096/k:4096/g:128");
  p.activations = Int8Activations::kBF16;
  p.zeros = Int4Zeros::kInteger;
  p.scale = DType::kBF16;
  p.act_order = true;
  p.c = DType::kF32;
  p.isa = IsaLevel::kAmx;
  const std::string text =
      "int4_gemm/m:1/n:4096/k:4096/g:128/act:bf16/z:u4/s:bf16/order:1/c:f32/isa:amx";
  EXPECT_EQ(to_string(p), text);
  const auto back = parse_problem(text);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->activations, Int8Activations::kBF16);
  EXPECT_EQ(back->zeros, Int4Zeros::kInteger);
  EXPECT_EQ(back->scale, DType::kBF16);
  EXPECT_TRUE(back->act_order);
  const auto plain = parse_problem("int4_gemm/act:s8dyn/z:sym/s:f16/order:0");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(to_string(*plain), "int4_gemm/m:0/n:0/k:0");
}

TEST(ProblemFormats, FormatsOfFp4Weights) {
  Problem p;
  p.op = "fp4_gemm";
  p.m = 1;
  p.n = 16;
  p.k = 32;
  EXPECT_EQ(to_string(p), "fp4_gemm/m:1/n:16/k:32");
  p.fp4 = Fp4Format::kMxfp4;
  EXPECT_EQ(to_string(p), "fp4_gemm/m:1/n:16/k:32/w:mxfp4");
  const auto back = parse_problem("fp4_gemm/m:1/n:16/k:32/w:mxfp4");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->fp4, Fp4Format::kMxfp4);
  EXPECT_FALSE(*back == *parse_problem("fp4_gemm/m:1/n:16/k:32/w:nvfp4"));
}

TEST(ProblemFormats, FieldsOfFp8Weights) {
  Problem p;
  p.op = "fp8_gemm";
  p.m = 1;
  p.n = 4096;
  p.k = 4096;
  EXPECT_EQ(to_string(p), "fp8_gemm/m:1/n:4096/k:4096");
  p.block_n = 128;
  p.block_k = 64;
  p.weights = DType::kE5M2;
  p.c = DType::kF32;
  const std::string text = "fp8_gemm/m:1/n:4096/k:4096/bn:128/bk:64/w:e5m2/c:f32";
  EXPECT_EQ(to_string(p), text);
  const auto back = parse_problem(text);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->block_n, 128);
  EXPECT_EQ(back->block_k, 64);
  EXPECT_EQ(back->weights, DType::kE5M2);
  const auto plain = parse_problem("fp8_gemm/bn:0/bk:0/w:e4m3");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(to_string(*plain), "fp8_gemm/m:0/n:0/k:0");
}

}  // namespace
}  // namespace quern
