#include "quern/problem.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "ops/problem_text.h"
#include "tests/support/rng.h"

namespace quern {
namespace {

constexpr int64_t kLimit = int64_t{1} << 62;

TEST(Problem, DefaultsAreLeftOut) {
  Problem p;
  p.op = "bf16_gemm";
  p.m = 1;
  p.n = 2;
  p.k = 3;
  EXPECT_EQ(to_string(p), "bf16_gemm/m:1/n:2/k:3");
}

// A problem with nothing to do has a name that says so: who reads one (quern-bench) may demand that
// all sizes are there. A plan's name has those of a plan.
TEST(Problem, EverySizeOfTheOpIsWrittenZerosToo) {
  const struct {
    const char* op;
    const char* call;
    const char* plan;
  } names[] = {{"quantize_rows", "/m:0/k:0", "/k:0"},     {"int4_gemm", "/m:0/n:0/k:0", "/n:0/k:0"},
               {"fp4_gemm", "/m:0/n:0/k:0", "/n:0/k:0"},  {"fp8_gemm", "/m:0/n:0/k:0", "/n:0/k:0"},
               {"int8_gemm", "/m:0/n:0/k:0", "/n:0/k:0"}, {"bf16_gemm", "/m:0/n:0/k:0", "/n:0/k:0"},
               {"bmm", "/b:0/m:0/n:0/k:0", "/n:0/k:0"}};
  for (const auto& name : names) {
    Problem p;
    p.op = name.op;
    EXPECT_EQ(to_string(p), p.op + name.call);
    EXPECT_EQ(plan_name(p), p.op + name.plan);
    for (const std::string& text : {p.op + name.call, p.op + name.plan}) {
      const auto back = parse_problem(text);
      ASSERT_TRUE(back.ok()) << text;
      EXPECT_TRUE(*back == p) << text;
    }
  }
}

TEST(Problem, EveryFieldInTheOrderOfTheGrammar) {
  Problem p;
  p.op = "int8_gemm";
  p.m = 1;
  p.n = 4096;
  p.k = 4097;
  p.group = 128;
  p.a = DType::kF32;
  p.activations = Int8Activations::kS8;
  p.c = DType::kF32;
  p.epilogue = {true, Activation::kSiluMul, true};
  p.isa = IsaLevel::kAvx512;
  p.threads = 2;
  p.cold = true;
  EXPECT_EQ(to_string(p),
            "int8_gemm/m:1/n:4096/k:4097/g:128/a:f32/act:s8/c:f32/epi:bias+silu_mul+residual/"
            "isa:avx512/thr:2/cold:1");
}

TEST(Problem, ABatchAndItsB) {
  Problem p;
  p.op = "bmm";
  p.batch = 128;
  p.m = 1;
  p.n = 512;
  p.k = 128;
  EXPECT_EQ(to_string(p), "bmm/b:128/m:1/n:512/k:128");
  for (const auto& [b, name] : {std::pair{BmmOperand::kS8, "s8"},
                                {BmmOperand::kPlainNK, "nk"},
                                {BmmOperand::kPlainKN, "kn"},
                                {BmmOperand::kE4M3, "e4m3"}}) {
    p.b = b;
    p.c = DType::kF32;
    const std::string text = "bmm/b:128/m:1/n:512/k:128/w:" + std::string(name) + "/c:f32";
    EXPECT_EQ(to_string(p), text);
    const auto back = parse_problem(text);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->batch, 128);
    EXPECT_EQ(back->b, b);
  }
}

TEST(Problem, ParsesTheExampleOfTheHeader) {
  const auto r = parse_problem(
      "int8_gemm/m:1/n:4096/k:4096/a:bf16/act:s8dyn/c:bf16/epi:bias+silu_mul/isa:avx512/thr:2/"
      "cold:1");
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->op, "int8_gemm");
  EXPECT_EQ(r->m, 1);
  EXPECT_EQ(r->n, 4096);
  EXPECT_EQ(r->k, 4096);
  EXPECT_EQ(r->group, 0);
  EXPECT_EQ(r->a, DType::kBF16);
  EXPECT_EQ(r->activations, Int8Activations::kDynamicS8);
  EXPECT_EQ(r->c, DType::kBF16);
  EXPECT_TRUE(r->epilogue.bias);
  EXPECT_EQ(r->epilogue.activation, Activation::kSiluMul);
  EXPECT_FALSE(r->epilogue.residual);
  EXPECT_EQ(r->isa, IsaLevel::kAvx512);
  EXPECT_EQ(r->threads, 2);
  EXPECT_TRUE(r->cold);
  // Fields at their default are legal to write and do not come back.
  EXPECT_EQ(to_string(*r), "int8_gemm/m:1/n:4096/k:4096/epi:bias+silu_mul/isa:avx512/thr:2/cold:1");
}

TEST(Problem, ExplicitDefaultsAndLimits) {
  const auto r = parse_problem(
      "int8_gemm/m:4611686018427387904/n:0/g:0/act:bf16/isa:none/thr:2147483647/cold:0");
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->m, kLimit);
  EXPECT_EQ(r->n, 0);
  EXPECT_EQ(r->activations, Int8Activations::kBF16);
  EXPECT_EQ(r->isa, IsaLevel::kNone);
  EXPECT_EQ(r->threads, INT32_MAX);
  EXPECT_FALSE(r->cold);
  for (const char* op :
       {"quantize_rows", "int4_gemm", "fp4_gemm", "fp8_gemm", "int8_gemm", "bf16_gemm", "bmm"}) {
    EXPECT_TRUE(parse_problem(op).ok()) << op;
  }
}

struct BadProblem {
  std::string text;
  int64_t at;          ///< offset of the fault
  const char* reason;  ///< part of the message
};

const BadProblem kBadProblems[] = {
    {"", 0, "the op"},
    {"/", 0, "the op"},
    {"/m:1", 0, "the op"},
    {"int2_gemm/m:1", 0, "the op"},
    {"int4_gemm/act:s8", 14, "act of int4_gemm"},
    {"int4_gemm/act:u8", 14, "act is"},
    {"int4_gemm/z:u8", 12, "z is"},
    {"int4_gemm/z:", 12, "z is"},
    {"int4_gemm/s:s8", 12, "s is"},
    {"int4_gemm/order:2", 16, "order is"},
    {"int4_gemm/s:f32/z:u4", 16, "order"},
    {"int4_gemm/order:1/s:f32", 18, "order"},
    {"int4_gemm/w:s8", 10, "fp8_gemm only"},
    {"int4_gemm/bn:1", 10, "fp8_gemm only"},
    {"bmm/bk:1", 4, "fp8_gemm only"},
    {"fp4_gemm/w:s8", 11, "w of fp4_gemm"},
    {"bmm/w:nvfp4", 6, "w of bmm"},
    {"fp4_gemm/b:1", 9, "bmm only"},
    {"fp4_gemm/bk:1", 9, "fp8_gemm only"},
    {"fp4_gemm/act:bf16", 9, "int8_gemm only"},
    {"fp8_gemm/w:bf16", 11, "w of fp8_gemm"},
    {"fp8_gemm/w:e2m1", 11, "w of fp8_gemm"},
    {"fp8_gemm/bk:1/bn:1", 14, "order"},
    {"fp8_gemm/z:u4", 9, "int4_gemm only"},
    {"fp8_gemm/act:bf16", 9, "int8_gemm only"},
    {"fp8_gemm/b:1", 9, "bmm only"},
    {"bmm/w:e4m3x", 6, "w of bmm"},
    {"int8_gemm/z:u4", 10, "int4_gemm only"},
    {"bf16_gemm/s:f16", 10, "int4_gemm only"},
    {"bmm/order:0", 4, "int4_gemm only"},
    {"int8_gem", 0, "the op"},
    {"int8_gemmm", 0, "the op"},
    {"INT8_GEMM", 0, "the op"},
    {" int8_gemm", 0, "the op"},
    {"int8_gemm /m:1", 0, "the op"},
    {"int8_gemm\n", 0, "the op"},
    {std::string("int8_gemm\0", 10), 0, "the op"},
    {"m:1/n:2", 0, "the op"},
    {"int8_gemm/", 10, "key:value"},
    {"int8_gemm//m:1", 10, "key:value"},
    {"int8_gemm/m:1/", 14, "key:value"},
    {"int8_gemm/m", 10, "key:value"},
    {"int8_gemm/m=1", 10, "key:value"},
    {"int8_gemm/:1", 10, "unknown key"},
    {"int8_gemm/M:1", 10, "unknown key"},
    {"int8_gemm/mm:1", 10, "unknown key"},
    {"int8_gemm/ m:1", 10, "unknown key"},
    {"int8_gemm/m :1", 10, "unknown key"},
    {"int8_gemm/lda:1", 10, "unknown key"},
    {"int8_gemm/m:1/m:1", 14, "key twice"},
    {"int8_gemm/m:1/n:2/m:1", 18, "key twice"},
    {"int8_gemm/cold:1/cold:1", 17, "key twice"},
    {"int8_gemm/n:1/m:1", 14, "order"},
    {"int8_gemm/cold:1/thr:1", 17, "order"},
    {"int8_gemm/c:f32/a:f32", 16, "order"},
    {"bmm/m:1/b:2", 8, "order"},
    {"bmm/c:f32/w:s8", 10, "order"},
    {"bmm/w:u8", 6, "w of bmm"},
    {"bmm/w:", 6, "w of bmm"},
    {"bmm/b:x", 6, "a number"},
    {"bmm/b:1/act:s8", 8, "int8_gemm only"},
    {"bf16_gemm/b:2", 10, "bmm only"},
    {"int8_gemm/m:1/w:s8", 14, "fp8_gemm only"},
    {"int8_gemm/m:", 12, "a number"},
    {"int8_gemm/m:/n:1", 12, "a number"},
    {"int8_gemm/m:-1", 12, "a number"},
    {"int8_gemm/m:+1", 12, "a number"},
    {"int8_gemm/m: 1", 12, "a number"},
    {"int8_gemm/m:x", 12, "a number"},
    {"int8_gemm/m::1", 12, "a number"},
    {"int8_gemm/m:01", 12, "leading zero"},
    {"int8_gemm/m:0x10", 12, "leading zero"},
    {"int8_gemm/m:1e3", 13, "text after"},
    {"int8_gemm/m:1.5", 13, "text after"},
    {"int8_gemm/m:12 ", 14, "text after"},
    {"int8_gemm/m:12:3", 14, "text after"},
    {std::string("int8_gemm/m:12\0", 15), 14, "text after"},
    {"int8_gemm/m:4611686018427387905", 12, "too large"},
    {"int8_gemm/m:9223372036854775808", 12, "too large"},
    {"int8_gemm/k:99999999999999999999999999999999", 12, "too large"},
    {"int8_gemm/thr:2147483648", 14, "too large"},
    {"int8_gemm/thr:-1", 14, "a number"},
    {"int8_gemm/a:", 12, "a type"},
    {"int8_gemm/a:bf17", 12, "a type"},
    {"int8_gemm/a:BF16", 12, "a type"},
    {"int8_gemm/a:bf16 ", 12, "a type"},
    {"int8_gemm/c:float", 12, "a type"},
    {"int8_gemm/act:u8", 14, "act is"},
    {"int8_gemm/act:", 14, "act is"},
    {"bf16_gemm/act:bf16", 10, "int8_gemm only"},
    {"quantize_rows/act:s8", 14, "int8_gemm only"},
    {"int8_gemm/epi:", 14, "epi is"},
    {"int8_gemm/epi:none", 14, "epi is"},
    {"int8_gemm/epi:bias+", 19, "epi is"},
    {"int8_gemm/epi:+bias", 14, "epi is"},
    {"int8_gemm/epi:bias+bias", 19, "epi is"},
    {"int8_gemm/epi:residual+bias", 23, "epi is"},
    {"int8_gemm/epi:bias++residual", 19, "epi is"},
    {"int8_gemm/epi:bias,residual", 14, "epi is"},
    {"int8_gemm/epi:silu", 14, "epi is"},
    {"int8_gemm/isa:avx2", 14, "isa is"},
    {"int8_gemm/isa:", 14, "isa is"},
    {"int8_gemm/cold:2", 15, "cold is"},
    {"int8_gemm/cold:", 15, "cold is"},
    {"int8_gemm/cold:true", 15, "cold is"},
    {"int8_gemm/cold:1x", 15, "cold is"},
    {"int8_gemm/m:1/n:2/k:3 trailing", 21, "text after"},
};

TEST(Problem, MalformedTextIsRefusedWithItsOffset) {
  for (const BadProblem& bad : kBadProblems) {
    SCOPED_TRACE(bad.text);
    const auto r = parse_problem(bad.text);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(r.status().value(0), bad.at) << r.status().message();
    EXPECT_NE(r.status().message().find(bad.reason), std::string::npos) << r.status().message();
  }
}

Problem random_problem(test::Rng& rng) {
  const auto number = [&rng] {
    if (rng.one_in(4)) return int64_t{0};
    return rng.one_in(8) ? kLimit - rng.in(0, 3) : rng.in(1, int64_t{1} << rng.in(1, 61));
  };
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                              DType::kS8,  DType::kU8,   DType::kS32};
  Problem p;
  p.op = rng.pick(std::initializer_list<const char*>{"quantize_rows", "int4_gemm", "fp4_gemm",
                                                     "fp8_gemm", "int8_gemm", "bf16_gemm", "bmm"});
  p.m = number();
  p.n = number();
  p.k = number();
  p.group = number();
  p.a = rng.pick(kTypes);
  p.c = rng.pick(kTypes);
  if (p.op == "bmm") {
    p.batch = number();
    p.b = static_cast<BmmOperand>(rng.in(0, 4));
  }
  if (p.op == "fp4_gemm") p.fp4 = static_cast<Fp4Format>(rng.in(0, 1));
  if (p.op == "int4_gemm") {
    p.activations = rng.one_in(2) ? Int8Activations::kBF16 : Int8Activations::kDynamicS8;
    p.zeros = static_cast<Int4Zeros>(rng.in(0, 2));
    p.scale = rng.pick(std::initializer_list<DType>{DType::kF16, DType::kBF16, DType::kF32});
    p.act_order = rng.one_in(2);
  }
  if (p.op == "int8_gemm") p.activations = static_cast<Int8Activations>(rng.in(0, 2));
  if (p.op == "fp8_gemm") {
    p.block_n = number();
    p.block_k = number();
    p.weights = rng.one_in(2) ? DType::kE4M3 : DType::kE5M2;
  }
  p.epilogue.bias = rng.one_in(2);
  p.epilogue.activation = rng.one_in(2) ? Activation::kSiluMul : Activation::kNone;
  p.epilogue.residual = rng.one_in(2);
  p.isa = static_cast<IsaLevel>(rng.in(0, 2));
  p.threads = static_cast<int32_t>(rng.one_in(3) ? 0 : rng.in(1, INT32_MAX));
  p.cold = rng.one_in(2);
  return p;
}

TEST(Problem, ParseInvertsToString) {
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    test::Rng rng(seed);
    const Problem p = random_problem(rng);
    const std::string text = to_string(p);
    const auto back = parse_problem(text);
    ASSERT_TRUE(back.ok()) << "seed " << seed << ": " << text << ": " << back.status().message();
    ASSERT_TRUE(*back == p) << "seed " << seed << ": " << text;
    ASSERT_EQ(to_string(*back), text) << "seed " << seed;
  }
}

// Any change of one byte of a legal string either parses to something that prints and parses again,
// or is refused with an offset inside the text.
TEST(Problem, MutatedTextNeverBreaksTheParser) {
  constexpr char kAlphabet[] = "/:+mnkgaceitshrzuod0123456789bf_ \n\xff";
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    test::Rng rng(seed);
    std::string text = to_string(random_problem(rng));
    for (int64_t edits = rng.in(1, 3); edits > 0; --edits) {
      const auto at = static_cast<size_t>(rng.in(0, static_cast<int64_t>(text.size())));
      const char c = kAlphabet[rng.in(0, sizeof kAlphabet - 1)];
      const int64_t kind = rng.in(0, 2);
      if (kind == 0) text.insert(at, 1, c);
      if (kind == 1 && at < text.size()) text.erase(at, 1);
      if (kind == 2 && at < text.size()) text[at] = c;
    }
    const auto r = parse_problem(text);
    if (r.ok()) {
      const auto again = parse_problem(to_string(*r));
      ASSERT_TRUE(again.ok() && *again == *r) << "seed " << seed << ": " << text;
    } else {
      ASSERT_GE(r.status().value(0), 0) << "seed " << seed << ": " << text;
      ASSERT_LE(r.status().value(0), static_cast<int64_t>(text.size())) << "seed " << seed;
    }
  }
}

TEST(Problem, EqualityLooksAtEveryField) {
  Problem base;
  base.op = "int8_gemm";
  const auto differs = [&base](auto change) {
    Problem p = base;
    EXPECT_TRUE(p == base);
    change(p);
    return !(p == base);
  };
  EXPECT_TRUE(differs([](Problem& p) { p.op = "bf16_gemm"; }));
  EXPECT_TRUE(differs([](Problem& p) { p.batch = 1; }));
  EXPECT_TRUE(differs([](Problem& p) { p.b = BmmOperand::kS8; }));
  EXPECT_TRUE(differs([](Problem& p) { p.m = 1; }));
  EXPECT_TRUE(differs([](Problem& p) { p.n = 1; }));
  EXPECT_TRUE(differs([](Problem& p) { p.k = 1; }));
  EXPECT_TRUE(differs([](Problem& p) { p.group = 1; }));
  EXPECT_TRUE(differs([](Problem& p) { p.a = DType::kF32; }));
  EXPECT_TRUE(differs([](Problem& p) { p.activations = Int8Activations::kS8; }));
  EXPECT_TRUE(differs([](Problem& p) { p.block_n = 5; }));
  EXPECT_TRUE(differs([](Problem& p) { p.block_k = 5; }));
  EXPECT_TRUE(differs([](Problem& p) { p.weights = DType::kE5M2; }));
  EXPECT_TRUE(differs([](Problem& p) { p.zeros = Int4Zeros::kInteger; }));
  EXPECT_TRUE(differs([](Problem& p) { p.scale = DType::kF32; }));
  EXPECT_TRUE(differs([](Problem& p) { p.act_order = true; }));
  EXPECT_TRUE(differs([](Problem& p) { p.c = DType::kF32; }));
  EXPECT_TRUE(differs([](Problem& p) { p.epilogue.bias = true; }));
  EXPECT_TRUE(differs([](Problem& p) { p.epilogue.activation = Activation::kSiluMul; }));
  EXPECT_TRUE(differs([](Problem& p) { p.epilogue.residual = true; }));
  EXPECT_TRUE(differs([](Problem& p) { p.isa = IsaLevel::kAmx; }));
  EXPECT_TRUE(differs([](Problem& p) { p.threads = 1; }));
  EXPECT_TRUE(differs([](Problem& p) { p.cold = true; }));
}

TEST(Problem, LongNamesGrowTheBuffer) {
  Problem p;
  p.op = std::string(1000, 'x');
  p.m = 5;
  EXPECT_EQ(to_string(p), p.op + "/m:5/n:0/k:0");
}

TEST(TextWriter, CountsWhatDoesNotFit) {
  char buffer[8] = "......!";
  TextWriter out(buffer, 4);
  out.text("ab");
  EXPECT_FALSE(out.truncated());
  out.number(-12345);
  out.text("");
  EXPECT_TRUE(out.truncated());
  EXPECT_EQ(out.size(), 4u);
  EXPECT_EQ(out.needed(), 8u);
  EXPECT_STREQ(buffer, "ab-1..!");
  out.text("more");
  EXPECT_STREQ(buffer, "ab-1..!");
  TextWriter nothing(nullptr, 0);
  nothing.text("x");
  EXPECT_EQ(nothing.size(), 0u);
  EXPECT_TRUE(nothing.truncated());
}

}  // namespace
}  // namespace quern
