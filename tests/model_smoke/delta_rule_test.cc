#include "model_smoke/layers/delta_rule.h"

#include <string>

#include "tests/model_smoke/layer_support.h"

namespace quern::smoke {
namespace {

/// All axis sizes differ, so that a swapped pair cannot go unseen (bug log D01).
constexpr DeltaShape kOddShape{.key_heads = 3, .value_heads = 6, .key_dim = 4, .value_dim = 7};
constexpr DeltaShape kModelShape{.key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 40};

enum class Gates { kRandom, kClosed, kOpen, kMixed, kSteep };
enum class Betas { kRandom, kZero, kOne };

struct Problem {
  DeltaShape shape;
  Tensor qkv, g, beta;

  Problem(const DeltaShape& shape_in, DType dtype, int64_t tokens, Gates gates, Betas betas)
      : shape(shape_in),
        qkv(random_tensor(dtype, tokens, shape.channels(), 21)),
        g(DType::kF32, tokens, shape.value_heads),
        beta(DType::kF32, tokens, shape.value_heads) {
    std::mt19937 random(22);
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < shape.value_heads; ++h) {
        const float u = unit(random), b = unit(random);
        float gate = -0.5f * u;
        if (gates == Gates::kClosed) gate = -30.0f;
        if (gates == Gates::kOpen) gate = 0.0f;
        if (gates == Gates::kMixed) gate = u < 0.2f ? -30.0f : -0.01f * u;
        if (gates == Gates::kSteep) gate = -0.1f - 4.9f * u;
        g.row<float>(t)[h] = gate;
        beta.row<float>(t)[h] = betas == Betas::kZero ? 0.0f : betas == Betas::kOne ? 1.0f : b;
      }
    }
  }
  int64_t tokens() const { return qkv.rows(); }
};

struct Outcome {
  Tensor o;
  std::vector<float> out, state;
};

/// Runs [0, split) and then the rest, each part in the form given.
Outcome run(LayerExec& exec, const Problem& p, int64_t split, DeltaForm first, DeltaForm second) {
  Outcome r;
  r.o.resize(p.qkv.dtype(), p.tokens(), p.shape.value_width());
  DeltaState state(p.shape);
  const auto part = [&](int64_t from, int64_t count, DeltaForm form) {
    if (count == 0) return;
    const auto rows = [&](MatrixView m) {
      m.data = static_cast<const std::byte*>(m.data) +
               static_cast<size_t>(from * m.row_stride) * size_of(m.dtype);
      m.rows = count;
      return m;
    };
    MutableMatrixView o = r.o.mutable_view();
    o.data = static_cast<std::byte*>(o.data) +
             static_cast<size_t>(from * o.row_stride) * size_of(o.dtype);
    o.rows = count;
    gated_delta_rule(
        exec, p.shape,
        {.qkv = rows(p.qkv.view()), .g = rows(p.g.view()), .beta = rows(p.beta.view()), .o = o},
        form, state);
  };
  part(0, split, first);
  part(split, p.tokens() - split, second);
  const Tensor wide = widened(r.o);
  r.out.assign(wide.row<float>(0), wide.row<float>(0) + wide.rows() * wide.cols());
  for (int64_t h = 0; h < p.shape.value_heads; ++h) {
    for (int64_t x = 0; x < p.shape.key_dim; ++x) {
      const float* row = state.head(h) + x * state.stride;
      r.state.insert(r.state.end(), row, row + p.shape.value_dim);
    }
  }
  return r;
}

/// The recurrence of models.md section 1.3 in double, written for this test alone.
Outcome oracle(const Problem& p) {
  const DeltaShape& s = p.shape;
  Outcome r;
  r.out.resize(static_cast<size_t>(p.tokens() * s.value_width()));
  for (int64_t h = 0; h < s.value_heads; ++h) {
    const int64_t group = h / (s.value_heads / s.key_heads);
    std::vector<double> state(static_cast<size_t>(s.key_dim * s.value_dim), 0.0);
    for (int64_t t = 0; t < p.tokens(); ++t) {
      std::vector<double> q, k;
      double qq = 1e-6, kk = 1e-6;
      for (int64_t i = 0; i < s.key_dim; ++i) {
        q.push_back(static_cast<double>(element(p.qkv, t, group * s.key_dim + i)));
        k.push_back(static_cast<double>(element(p.qkv, t, (s.key_heads + group) * s.key_dim + i)));
        qq += q.back() * q.back();
        kk += k.back() * k.back();
      }
      const double decay = std::exp(static_cast<double>(p.g.row<float>(t)[h]));
      const double beta = static_cast<double>(p.beta.row<float>(t)[h]);
      for (int64_t c = 0; c < s.value_dim; ++c) {
        const int64_t column = 2 * s.key_heads * s.key_dim + h * s.value_dim + c;
        double read = 0, out = 0;
        for (int64_t i = 0; i < s.key_dim; ++i) {
          state[i * s.value_dim + c] *= decay;
          read += state[i * s.value_dim + c] * k[i] / std::sqrt(kk);
        }
        const double delta = beta * (static_cast<double>(element(p.qkv, t, column)) - read);
        for (int64_t i = 0; i < s.key_dim; ++i) {
          state[i * s.value_dim + c] += k[i] / std::sqrt(kk) * delta;
          out += state[i * s.value_dim + c] * q[i] / std::sqrt(qq * static_cast<double>(s.key_dim));
        }
        r.out[t * s.value_width() + h * s.value_dim + c] = static_cast<float>(out);
      }
    }
    for (const double x : state) r.state.push_back(static_cast<float>(x));
  }
  return r;
}

TEST(DeltaRule, OneNumberByHand) {
  // key_dim 1: q and k become +-1 (up to the eps of 1e-6), S is one number.
  const DeltaShape shape{.key_heads = 1, .value_heads = 1, .key_dim = 1, .value_dim = 1};
  Tensor qkv(DType::kF32, 2, 3), g(DType::kF32, 2, 1), beta(DType::kF32, 2, 1),
      o(DType::kF32, 2, 1);
  const float rows[2][3] = {{1000, 1000, 8}, {-1000, 1000, 6}};
  std::memcpy(qkv.row<float>(0), rows, sizeof(rows));
  g.row<float>(0)[0] = -7.0f;  // nothing to forget yet
  g.row<float>(1)[0] = std::log(0.25f);
  beta.row<float>(0)[0] = 0.5f;
  beta.row<float>(1)[0] = 0.75f;
  for (const DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
    ExecFixture f(LayerImpl::kScalar);
    DeltaState state(shape);
    gated_delta_rule(f.exec, shape,
                     {.qkv = qkv.view(), .g = g.view(), .beta = beta.view(), .o = o.mutable_view()},
                     form, state);
    // S = 0.5 * 8 = 4; then S = 1, r = 1, d = 0.75 * (6 - 1) = 3.75, S = 4.75, o = -4.75.
    EXPECT_NEAR(o.row<float>(0)[0], 4.0f, 1e-5f);
    EXPECT_NEAR(o.row<float>(1)[0], -4.75f, 1e-5f);
    EXPECT_NEAR(state.head(0)[0], 4.75f, 1e-5f);
  }
}

TEST(DeltaGates, Literals) {
  Tensor a(DType::kF32, 1, 3), b(DType::kF32, 1, 3), g(DType::kF32, 1, 3), beta(DType::kF32, 1, 3);
  const float as[3] = {0.0f, 100.0f, -100.0f}, bs[3] = {0.0f, 200.0f, -200.0f};
  std::memcpy(a.row<float>(0), as, sizeof(as));
  std::memcpy(b.row<float>(0), bs, sizeof(bs));
  const std::vector<float> a_log = {0.0f, std::log(2.0f), 16.0f}, bias = {0.0f, 1.0f, 0.0f};
  delta_gates(a.view(), b.view(), view_of(a_log), view_of(bias), g.mutable_view(),
              beta.mutable_view());
  EXPECT_NEAR(g.row<float>(0)[0], -0.69314718f, 1e-6f);  // -ln 2
  EXPECT_NEAR(g.row<float>(0)[1], -202.0f, 1e-4f);       // softplus(x) = x for large x
  EXPECT_NEAR(g.row<float>(0)[2], 0.0f, 1e-30f);
  EXPECT_EQ(beta.row<float>(0)[0], 0.5f);
  EXPECT_EQ(beta.row<float>(0)[1], 1.0f);
  EXPECT_EQ(beta.row<float>(0)[2], 0.0f);
}

struct FormCase {
  Gates gates;
  Betas betas;
  const char* name;
};

class DeltaForms : public testing::TestWithParam<FormCase> {};

/// Bug log T13: chunked and one token at a time agree for every length and every split.
TEST_P(DeltaForms, EveryLengthAndSplit) {
  ExecFixture f(LayerImpl::kScalar), simd(LayerImpl::kSimd);
  constexpr DeltaForm kR = DeltaForm::kRecurrent, kC = DeltaForm::kChunked;
  for (const int64_t tokens : {1, 2, 63, 64, 65, 127, 128, 129}) {
    const Problem p(kOddShape, DType::kF32, tokens, GetParam().gates, GetParam().betas);
    const Problem rounded(kOddShape, DType::kBF16, tokens, GetParam().gates, GetParam().betas);
    const Outcome expected = oracle(p), expected_rounded = oracle(rounded);
    const auto agrees = [](const Outcome& got, const Outcome& want, const std::string& what) {
      EXPECT_LE(relative_error(got.state, want.state), 1e-5) << what;
      return relative_error(got.out, want.out);
    };
    for (int64_t split = 0; split <= tokens; ++split) {
      const std::string what =
          std::to_string(tokens) + " tokens, split after " + std::to_string(split);
      EXPECT_LE(agrees(run(f.exec, p, split, kC, kC), expected, what), 1e-5) << what;
      EXPECT_LE(agrees(run(f.exec, p, split, kC, kR), expected, what), 1e-5) << what;
      EXPECT_LE(agrees(run(f.exec, p, split, kR, kC), expected, what), 1e-5) << what;
      // bf16 outputs carry their own rounding, half an ulp; the state does not.
      EXPECT_LE(agrees(run(simd.exec, rounded, split, kC, kC), expected_rounded, what), 0x1p-8)
          << what;
      EXPECT_LE(agrees(run(simd.exec, rounded, split, kR, kC), expected_rounded, what), 0x1p-8)
          << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeltaForms,
                         testing::Values(FormCase{Gates::kRandom, Betas::kRandom, "random"},
                                         FormCase{Gates::kClosed, Betas::kRandom, "gates_minus_30"},
                                         FormCase{Gates::kOpen, Betas::kRandom, "gates_0"},
                                         FormCase{Gates::kMixed, Betas::kRandom, "gates_mixed"},
                                         FormCase{Gates::kSteep, Betas::kRandom, "gates_steep"},
                                         FormCase{Gates::kOpen, Betas::kOne, "gates_0_beta_1"},
                                         FormCase{Gates::kClosed, Betas::kOne,
                                                  "gates_minus_30_beta_1"},
                                         FormCase{Gates::kRandom, Betas::kZero, "beta_0"},
                                         FormCase{Gates::kRandom, Betas::kOne, "beta_1"}),
                         [](const auto& test) { return std::string(test.param.name); });

/// Bug log D02: the weights inside a chunk are decays, not a plain mask.
TEST(DeltaRule, SteepGatesInsideOneChunk) {
  ExecFixture f(LayerImpl::kScalar);
  const Problem p(kOddShape, DType::kF32, 9, Gates::kSteep, Betas::kRandom);
  const Outcome expected = oracle(p);
  for (const DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
    const Outcome got = run(f.exec, p, 9, form, form);
    EXPECT_LE(relative_error(got.out, expected.out), 1e-5);
    EXPECT_LE(relative_error(got.state, expected.state), 1e-5);
  }
}

class DeltaImpls : public testing::TestWithParam<DeltaShape> {};

TEST_P(DeltaImpls, HighwayAgreesWithTheTwinForAnyThreads) {
  for (const int64_t tokens : {1, 5, 70}) {
    const Problem p(GetParam(), DType::kBF16, tokens, Gates::kRandom, Betas::kRandom);
    for (const DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
      ExecFixture twin(LayerImpl::kScalar), one(LayerImpl::kSimd, 1), three(LayerImpl::kSimd, 3);
      const Outcome expected = run(twin.exec, p, tokens, form, form);
      const Outcome got = run(one.exec, p, tokens, form, form);
      const Outcome threaded = run(three.exec, p, tokens, form, form);
      EXPECT_LE(relative_error(got.state, expected.state), 1e-5);
      // f32 differences of 1e-5 of values below 4.
      expect_close_bf16(got.o, expected.o, 4e-5f);
      EXPECT_TRUE(same_bits(got.o, threaded.o));
      EXPECT_EQ(got.state, threaded.state);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DeltaImpls,
    testing::Values(kOddShape, kModelShape,
                    DeltaShape{.key_heads = 1, .value_heads = 3, .key_dim = 128, .value_dim = 100},
                    DeltaShape{.key_heads = 2, .value_heads = 2, .key_dim = 17, .value_dim = 1}));

TEST(DeltaRule, PaddingOfTheStateStaysZero) {
  ExecFixture f(LayerImpl::kSimd);
  const Problem p(kOddShape, DType::kBF16, 70, Gates::kRandom, Betas::kRandom);
  DeltaState state(kOddShape);
  Tensor o(DType::kBF16, 70, kOddShape.value_width());
  for (const DeltaForm form : {DeltaForm::kChunked, DeltaForm::kRecurrent}) {
    gated_delta_rule(
        f.exec, kOddShape,
        {.qkv = p.qkv.view(), .g = p.g.view(), .beta = p.beta.view(), .o = o.mutable_view()}, form,
        state);
    for (int64_t row = 0; row < kOddShape.value_heads * kOddShape.key_dim; ++row) {
      for (int64_t c = kOddShape.value_dim; c < state.stride; ++c) {
        ASSERT_EQ(state.data[static_cast<size_t>(row * state.stride + c)], 0.0f);
      }
    }
  }
}

}  // namespace
}  // namespace quern::smoke
