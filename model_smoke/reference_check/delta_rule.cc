// The gated delta rule in double, one token at a time, with a running bound.
//
// One column s of a head's state (key_dim numbers), a = exp(g), k and q normalised:
//   s' = a s;  d = beta (v - k s');  s = s' + k d;  o = q s
// Both forms of the kernel compute this recurrence; the chunked one holds the d of a chunk and sums
// e^(G_i - G_j) k_j d_j when it needs them. Let E bound the 2-norm of (kernel's s - true s), and
//   m_i = a_i (m_{i-1} + |d_{i-1}|),  m = |s| (2-norm) at the start of the chunk
// bound the 2-norm of everything that is summed up to token i (|k| <= 1); the recurrent form starts
// a chunk with every token. |d| <= D = beta (|v| + m).
//
// 1. How an error travels. s -> a (I - beta k k^T) s has norm a max(1, |1 - beta|), so E is carried
//    over with that factor; a wrong d_i adds k_i (error of d_i), of norm at most its size.
// 2. What a token adds. k and q are off by kappa = gamma(key_dim / 2 + 7) of themselves (their sums
//    of squares are halved by the root; root, quotient and products come on top). A product of k
//    with the state or with another k is a sum of key_dim terms: gamma(key_dim + 3). A decay e^x is
//    off by 2^-22 and, where x was rounded to f32 first, by u |x|: never more than 110 u, because
//    e^-110 is 0 in f32. The triangular solve and the sums over a chunk have at most 65 terms. So
//    d_i is off by at most C D, and what is read or stored of s by C (m + |d|), with
//      C = gamma(key_dim + 3) + 2 kappa + 2^-21 + 16 u + [chunked: gamma(66) + 110 u]
// 3. So: E <- a max(1, |1 - beta|) E + C D, plus C (m + D) wherever the state is stored (every
//    token, or the end of a chunk); o is off by |q| (E + C (m + D)), |q| <= 1 / sqrt(key_dim).
// Terms of second order are below a hundredth of these while C < 1/200: 1.01 covers them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model_smoke/reference_check/checks.h"
#include "model_smoke/reference_check/element_check.h"
#include "reference/numeric.h"

namespace quern::smoke {
namespace {

constexpr double kNormEps = 1e-6;
constexpr double kSecondOrder = 1.01;

/// x / sqrt(sum(x^2) + eps) * scale.
std::vector<double> normalized(const MatrixView& m, int64_t row, int64_t first, int64_t n,
                               double scale) {
  std::vector<double> x;
  double sum = kNormEps;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(reference::load(m, row, first + i));
    sum += x.back() * x.back();
  }
  for (double& v : x) v *= scale / std::sqrt(sum);
  return x;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

/// What all columns of a head share at one token.
struct Token {
  std::vector<double> q, k;
  double decay, beta;
  bool starts_chunk, ends_chunk;
};

class Column {
 public:
  Column(std::vector<double> state, double c) : state_(std::move(state)), c_(c) {}

  Bounded step(const Token& t, double v) {
    m_ = t.decay * (t.starts_chunk ? norm(state_) + error_ : m_ + std::fabs(delta_));
    double read = 0;
    for (size_t i = 0; i < state_.size(); ++i) {
      state_[i] *= t.decay;
      read += t.k[i] * state_[i];
    }
    delta_ = t.beta * (v - read);
    double o = 0;
    for (size_t i = 0; i < state_.size(); ++i) {
      state_[i] += t.k[i] * delta_;
      o += t.q[i] * state_[i];
    }
    const double most = std::fabs(t.beta) * (std::fabs(v) + m_);
    error_ = t.decay * std::max(1.0, std::fabs(1 - t.beta)) * error_ + c_ * most;
    const double summed = c_ * (m_ + most);
    const double bound = norm(t.q) * (error_ + summed) * kSecondOrder + kTiny;
    if (t.ends_chunk) error_ += summed;
    return {o, bound};
  }
  double state(int64_t i) const { return state_[static_cast<size_t>(i)]; }
  double state_bound() const { return error_ * kSecondOrder + kTiny; }

 private:
  std::vector<double> state_;
  double c_;
  double error_ = 0, m_ = 0, delta_ = 0;
};

/// C of the comment above.
double token_error(const DeltaRule& rule) {
  const double dk = static_cast<double>(rule.shape.key_dim);
  const double chunk =
      rule.form == DeltaForm::kChunked ? gamma(static_cast<double>(kDeltaChunk) + 2) + 110 * kU : 0;
  return gamma(dk + 3) + 2 * gamma(dk / 2 + 7) + 0x1p-21 + 16 * kU + chunk;
}

std::vector<Token> tokens_of(const DeltaRule& rule, const DeltaArgs& args, int64_t head) {
  const DeltaShape& shape = rule.shape;
  const int64_t first = shape.key_head_of(head) * shape.key_dim;
  const double root = std::sqrt(static_cast<double>(shape.key_dim));
  const int64_t chunk = rule.form == DeltaForm::kChunked ? kDeltaChunk : 1;
  std::vector<Token> tokens;
  for (int64_t t = 0; t < args.qkv.rows; ++t) {
    tokens.push_back({.q = normalized(args.qkv, t, first, shape.key_dim, 1 / root),
                      .k = normalized(args.qkv, t, shape.key_width() + first, shape.key_dim, 1),
                      .decay = std::exp(reference::load(args.g, t, head)),
                      .beta = reference::load(args.beta, t, head),
                      .starts_chunk = t % chunk == 0,
                      .ends_chunk = (t + 1) % chunk == 0 || t + 1 == args.qkv.rows});
  }
  return tokens;
}

}  // namespace

DeltaComparison check_delta_rule(const DeltaRule& rule, const DeltaArgs& args,
                                 const DeltaState& before, const DeltaState& after) {
  const DeltaShape& shape = rule.shape;
  ElementCheck output(args.o.dtype), state(DType::kF32);
  for (int64_t h = 0; h < shape.value_heads; ++h) {
    const std::vector<Token> tokens = tokens_of(rule, args, h);
    for (int64_t c = 0; c < shape.value_dim; ++c) {
      std::vector<double> start;
      for (int64_t i = 0; i < shape.key_dim; ++i) {
        start.push_back(static_cast<double>(before.head(h)[i * before.stride + c]));
      }
      Column column(std::move(start), token_error(rule));
      const int64_t at = h * shape.value_dim + c;
      for (int64_t t = 0; t < args.qkv.rows; ++t) {
        const double v = reference::load(args.qkv, t, 2 * shape.key_width() + at);
        output.add(t, at, reference::load(args.o, t, at),
                   column.step(tokens[static_cast<size_t>(t)], v));
      }
      for (int64_t i = 0; i < shape.key_dim; ++i) {
        state.add(h * shape.key_dim + i, c,
                  static_cast<double>(after.head(h)[i * after.stride + c]),
                  {column.state(i), column.state_bound()});
      }
    }
  }
  return {output.result(), state.result()};
}

}  // namespace quern::smoke
