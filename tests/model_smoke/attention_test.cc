#include "model_smoke/layers/attention.h"

#include "model_smoke/reference_check/checks.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/layer_support.h"

namespace quern::smoke {
namespace {

struct Shape {
  int64_t heads, kv_heads, dim, tokens;
};

struct Inputs {
  Tensor q, gate, k, v;
  Inputs(DType dtype, const Shape& s)
      : q(random_tensor(dtype, s.tokens, s.heads * s.dim, 1, 2.0f)),
        gate(random_tensor(dtype, s.tokens, s.heads * s.dim, 2)),
        k(random_tensor(dtype, s.tokens, s.kv_heads * s.dim, 3)),
        v(random_tensor(dtype, s.tokens, s.kv_heads * s.dim, 4)) {}
};

MatrixView row_range(const Tensor& t, int64_t first, int64_t count) {
  MatrixView m = t.view();
  m.data = t.row<std::byte>(0) + static_cast<size_t>(first * t.cols()) * size_of(t.dtype());
  m.rows = count;
  return m;
}
MutableMatrixView row_range(Tensor& t, int64_t first, int64_t count) {
  MutableMatrixView m = t.mutable_view();
  m.data = t.row<std::byte>(0) + static_cast<size_t>(first * t.cols()) * size_of(t.dtype());
  m.rows = count;
  return m;
}

/// Tokens [first, first + count) against everything up to them.
void attend(LayerExec& exec, const Shape& s, const Inputs& in, int64_t first, int64_t count,
            KvCache& cache, Tensor& out) {
  const auto heads = [&](const Tensor& t, int64_t n) {
    return heads_of(row_range(t, first, count), n, s.dim, s.dim);
  };
  cache.reserve(first + count);
  cache.append(heads(in.k, s.kv_heads), heads(in.v, s.kv_heads));
  gated_attention(exec,
                  {.q = heads(in.q, s.heads),
                   .gate = heads(in.gate, s.heads),
                   .first_position = first,
                   .out = heads_of(row_range(out, first, count), s.heads, s.dim, s.dim)},
                  cache);
}

TEST(Attention, TwoKeysByHand) {
  ExecFixture f(LayerImpl::kScalar);
  const Shape s{.heads = 1, .kv_heads = 1, .dim = 4, .tokens = 2};
  Inputs in(DType::kF32, s);
  for (Tensor* t : {&in.q, &in.gate, &in.k, &in.v}) t->zero();
  in.q.row<float>(1)[0] = 2.0f;  // score with key 1: 2 * ln(3) / sqrt(4) = ln 3, with key 0: 0
  in.k.row<float>(1)[0] = std::log(3.0f);
  in.v.row<float>(0)[2] = 8.0f;
  in.v.row<float>(1)[2] = 16.0f;
  KvCache cache(DType::kF32, 1, 4);
  Tensor out(DType::kF32, 2, 4);
  attend(f.exec, s, in, 0, 2, cache, out);
  EXPECT_FLOAT_EQ(out.row<float>(0)[2], 4.0f);  // only key 0; gate logistic(0) = 1/2
  EXPECT_NEAR(out.row<float>(1)[2], 0.5f * (0.25f * 8 + 0.75f * 16), 1e-5f);
}

TEST(Attention, QueryHeadsShareKvHeadsInOrder) {
  ExecFixture f(LayerImpl::kScalar);
  const Shape s{.heads = 6, .kv_heads = 2, .dim = 3, .tokens = 1};
  Inputs in(DType::kF32, s);
  for (int64_t i = 0; i < 3; ++i) {
    in.v.row<float>(0)[i] = 1.0f;
    in.v.row<float>(0)[3 + i] = 2.0f;
  }
  in.gate.zero();
  KvCache cache(DType::kF32, 2, 3);
  Tensor out(DType::kF32, 1, 18);
  attend(f.exec, s, in, 0, 1, cache, out);
  for (int64_t h = 0; h < 6; ++h) {
    EXPECT_FLOAT_EQ(out.row<float>(0)[h * 3], h < 3 ? 0.5f : 1.0f) << "head " << h;
  }
}

TEST(E4M3, EveryCodeIsItsOwnRounding) {
  for (int code = 0; code < 256; ++code) {
    const e4m3 x{static_cast<uint8_t>(code)};
    EXPECT_EQ(e4m3::from_float(to_float(x)).bits & 0x7f, code & 0x7f) << code;
    if ((code & 0x7f) != 0x7f) {
      EXPECT_EQ(e4m3::from_float(to_float(x)).bits, code);
    }
  }
  EXPECT_EQ(to_float(e4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_float(e4m3{0x38}), 1.0f);
  EXPECT_EQ(to_float(e4m3{0x7e}), 448.0f);
  EXPECT_EQ(to_float(e4m3{0xfe}), -448.0f);
  EXPECT_TRUE(std::isnan(to_float(e4m3{0x7f})) && std::isnan(to_float(e4m3{0xff})));
}

/// loading-rules.md B12.
TEST(E4M3, RoundsToNearestEvenAndSaturates) {
  std::vector<float> values = {0.0f,      -0.0f,   447.9f,    448.0f,    449.0f,   464.0f,
                               480.0f,    1e30f,   INFINITY,  -INFINITY, 0x1p-10f, 0x1.000002p-10f,
                               0x1p-149f, 0x1p-6f, 0x1.fp-7f, 0x1.ep-7f, 0x1.dp-7f};
  for (int code = 0; code < 0x7e; ++code) {  // ties, and the floats beside them
    const float tie = (to_float(e4m3{static_cast<uint8_t>(code)}) +
                       to_float(e4m3{static_cast<uint8_t>(code + 1)})) /
                      2;
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  for (const float x : random_vector(2000, 1, 8.0f)) values.push_back(x);
  for (const float x : random_vector(2000, 2, 0.01f)) values.push_back(x);
  for (const float x : values) EXPECT_EQ(e4m3::from_float(x).bits, test::nearest_e4m3(x)) << x;
  EXPECT_EQ(e4m3::from_float(NAN).bits & 0x7f, 0x7f);
}

/// f32: the score 3 is exact; its exponential is off by 2^-22 of itself, and five roundings follow
/// (the sum, the quotient, two products and their sum), each 2^-24: below 2^-21 of 28. bf16: the
/// probabilities 0.95 and 0.05 are rounded by at most 2^-9 and 2^-13, which weigh 28 and 1.5, and
/// the result, below 32, by 2^-4.
TEST(Attention, ScalesOfAnFp8CacheByHand) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ExecFixture f(LayerImpl::kScalar);
    const Shape s{.heads = 1, .kv_heads = 1, .dim = 4, .tokens = 2};
    Inputs in(dtype, s);
    for (Tensor* t : {&in.q, &in.gate, &in.k, &in.v}) t->zero();
    const auto set = [&](Tensor& t, int64_t row, int64_t col, float x) {
      if (dtype == DType::kF32) {
        t.row<float>(row)[col] = x;
      } else {
        t.row<bfloat16>(row)[col] = bfloat16::from_float(x);
      }
    };
    // 6 / 0.5 = 12 is a code; the score is 12 * 0.5 * q / 2 = 3 q. 100 / 0.125 saturates at 448.
    set(in.q, 1, 0, 1.0f);
    set(in.k, 1, 0, 6.0f);
    set(in.v, 0, 1, 3.0f);
    set(in.v, 1, 1, 100.0f);
    KvCache cache = KvCache::e4m3_scaled(1, 4, 0.5f, 0.125f);
    Tensor out(dtype, 2, 4);
    attend(f.exec, s, in, 0, 2, cache, out);
    EXPECT_EQ(cache.keys<e4m3>(0)[16].bits, 0x54);  // 12
    EXPECT_EQ(cache.values<e4m3>(0)[17].bits, 0x7e);
    EXPECT_FLOAT_EQ(element(out, 0, 1), 1.5f);  // gate logistic(0) = 1/2
    const double p = 1 / (1 + std::exp(-3.0));
    const double bound =
        dtype == DType::kF32 ? 28 * 0x1p-21 : 28 * 0x1p-21 + 28 * 0x1p-9 + 1.5 * 0x1p-13 + 0x1p-4;
    EXPECT_NEAR(static_cast<double>(element(out, 1, 1)), 0.5 * (p * 56 + (1 - p) * 3), bound);
  }
}

class AttentionShapes : public testing::TestWithParam<Shape> {};

TEST_P(AttentionShapes, HighwayAgreesWithTheTwin) {
  const Shape s = GetParam();
  const Inputs in(DType::kBF16, s);
  ExecFixture twin(LayerImpl::kScalar), simd(LayerImpl::kSimd, 2);
  KvCache a(DType::kBF16, s.kv_heads, s.dim), b(DType::kBF16, s.kv_heads, s.dim);
  Tensor expected(DType::kBF16, s.tokens, s.heads * s.dim);
  Tensor actual(DType::kBF16, s.tokens, s.heads * s.dim);
  attend(twin.exec, s, in, 0, s.tokens, a, expected);
  attend(simd.exec, s, in, 0, s.tokens, b, actual);
  // Probabilities are rounded to bf16: one that falls the other way moves an output by 2^-8 p |v|,
  // |v| < 5. Few do so at once; 2^-8 * 5 * 1/4 covers a quarter of the mass.
  expect_close_bf16(actual, expected, 0x1p-10f * 5);
}

/// loading-rules.md B12: every byte is the code nearest to x / scale, and what the bytes stand for
/// is attended to within the bound of the formula.
TEST_P(AttentionShapes, AnFp8CacheHoldsItsFormulas) {
  const Shape s = GetParam();
  constexpr float kKScale = 0.013f, kVScale = 0.02f;
  const Inputs in(DType::kBF16, s);
  for (const LayerImpl impl : {LayerImpl::kScalar, LayerImpl::kSimd}) {
    ExecFixture f(impl, 2);
    KvCache cache = KvCache::e4m3_scaled(s.kv_heads, s.dim, kKScale, kVScale);
    Tensor out(DType::kBF16, s.tokens, s.heads * s.dim);
    attend(f.exec, s, in, 0, s.tokens, cache, out);
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t c = 0; c < s.kv_heads * s.dim; ++c) {
        const int64_t at = t * cache.stride() + c % s.dim;
        EXPECT_EQ(cache.keys<e4m3>(c / s.dim)[at].bits,
                  test::nearest_e4m3(element(in.k, t, c) / kKScale));
        EXPECT_EQ(cache.values<e4m3>(c / s.dim)[at].bits,
                  test::nearest_e4m3(element(in.v, t, c) / kVScale));
      }
    }
    const Comparison c =
        check_attention({.q = heads_of(in.q.view(), s.heads, s.dim, s.dim),
                         .gate = heads_of(in.gate.view(), s.heads, s.dim, s.dim),
                         .first_position = 0,
                         .out = heads_of(out.mutable_view(), s.heads, s.dim, s.dim)},
                        cache);
    EXPECT_EQ(c.outside, 0);
  }
}

TEST_P(AttentionShapes, StepByStepIsTheSameBits) {
  const Shape s = GetParam();
  const Inputs in(DType::kBF16, s);
  const auto make = [&](bool fp8) {
    return fp8 ? KvCache::e4m3_scaled(s.kv_heads, s.dim, 0.01f, 0.02f)
               : KvCache(DType::kBF16, s.kv_heads, s.dim);
  };
  for (int variant = 0; variant < 4; ++variant) {
    ExecFixture f(variant % 2 ? LayerImpl::kScalar : LayerImpl::kSimd);
    KvCache whole_cache = make(variant / 2), cache = make(variant / 2);
    Tensor whole(DType::kBF16, s.tokens, s.heads * s.dim);
    Tensor steps(DType::kBF16, s.tokens, s.heads * s.dim);
    attend(f.exec, s, in, 0, s.tokens, whole_cache, whole);
    for (int64_t t = 0; t < s.tokens; ++t) attend(f.exec, s, in, t, 1, cache, steps);
    EXPECT_TRUE(same_bits(steps, whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShapes,
                         testing::Values(Shape{1, 1, 1, 1}, Shape{3, 1, 40, 5}, Shape{4, 2, 64, 17},
                                         Shape{8, 2, 33, 16}, Shape{2, 2, 256, 70},
                                         Shape{6, 3, 24, 65}));

TEST(KvCache, GrowingKeepsWhatIsThere) {
  KvCache cache(DType::kF32, 2, 3);
  const Tensor k = random_tensor(DType::kF32, 9, 6, 1), v = random_tensor(DType::kF32, 9, 6, 2);
  for (int64_t t = 0; t < 9; ++t) {
    cache.reserve(t + 1);
    cache.append(heads_of(row_range(k, t, 1), 2, 3, 3), heads_of(row_range(v, t, 1), 2, 3, 3));
  }
  EXPECT_EQ(cache.length(), 9);
  EXPECT_EQ(cache.stride(), 16);
  for (int64_t t = 0; t < 9; ++t) {
    EXPECT_EQ(cache.keys<float>(1)[t * 16 + 2], k.row<float>(t)[5]);
    EXPECT_EQ(cache.values<float>(0)[t * 16], v.row<float>(t)[0]);
    EXPECT_EQ(cache.values<float>(0)[t * 16 + 3], 0.0f);  // padding
  }
}

}  // namespace
}  // namespace quern::smoke
