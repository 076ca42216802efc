#include "model_smoke/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "model_smoke/sampler.h"

namespace quern::smoke {
namespace {

TEST(LogitStats, ByHand) {
  const float expected[4] = {0, std::log(3.0f), 2, 2}, actual[4] = {0, 0, 2, 2.5f};
  LogitStats s;
  s.add(expected, actual, 2, 2);
  EXPECT_EQ(s.rows(), 2);
  EXPECT_NEAR(s.max_abs(), std::log(3.0), 1e-6);
  const double l = std::log(3.0);
  EXPECT_NEAR(s.relative_rms(), std::sqrt((l * l + 0.25) / (l * l + 8)), 1e-6);
  // Row 0: p = (1/4, 3/4) against (1/2, 1/2); row 1: (1/2, 1/2) against softmax(2, 2.5).
  const double kl0 = 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  const double q = 1 / (1 + std::exp(0.5));
  const double kl1 = 0.5 * std::log(0.5 / q) + 0.5 * std::log(0.5 / (1 - q));
  EXPECT_NEAR(s.kl(), (kl0 + kl1) / 2, 1e-6);
  EXPECT_EQ(s.argmax_agreement(), 0.0);  // row 1: a tie goes to the first
}

TEST(LogitStats, NaNIsNeverClose) {
  const float expected[2] = {1, 2}, broken[2] = {NAN, 2}, fine[2] = {1, 2};
  LogitStats s;
  s.add(expected, broken, 1, 2);
  s.add(expected, fine, 1, 2);
  EXPECT_TRUE(std::isinf(s.max_abs()));
  EXPECT_FALSE(s.relative_rms() <= 1e9);
  EXPECT_FALSE(s.kl() <= 1e9);
}

TEST(Argmax, FirstOfEqualsAndNaN) {
  const float ties[3] = {1, 5, 5}, nan_first[3] = {NAN, 1, 0};
  EXPECT_EQ(argmax(ties, 3), 1);
  EXPECT_EQ(argmax(nan_first, 3), 1);
}

TEST(Sampler, ZeroTemperatureIsGreedy) {
  const float logits[4] = {0, 3, 2, 3};
  Sampler s({.temperature = 0});
  EXPECT_EQ(s.pick(logits, 4), 1);
}

std::set<int32_t> picks(Sampler::Options options, const std::vector<float>& logits) {
  Sampler s(options);
  std::set<int32_t> seen;
  for (int i = 0; i < 2000; ++i) {
    seen.insert(s.pick(logits.data(), static_cast<int64_t>(logits.size())));
  }
  return seen;
}

TEST(Sampler, TopKAndTopPCut) {
  const std::vector<float> logits = {0, 1, 2, 3, 2.5f};
  EXPECT_EQ(picks({.temperature = 5}, logits).size(), 5u);
  EXPECT_EQ(picks({.temperature = 5, .top_k = 2}, logits), (std::set<int32_t>{3, 4}));
  EXPECT_EQ(picks({.temperature = 1, .top_p = 0.3}, logits), (std::set<int32_t>{3}));
  EXPECT_EQ(picks({.temperature = 1, .top_p = 0}, logits), (std::set<int32_t>{3}));
}

TEST(Sampler, SeedDecides) {
  const std::vector<float> logits(50, 0.0f);
  std::vector<int32_t> first, again, other;
  for (auto [seed, out] : {std::pair{1, &first}, std::pair{1, &again}, std::pair{2, &other}}) {
    Sampler s({.temperature = 1, .seed = static_cast<uint64_t>(seed)});
    for (int i = 0; i < 20; ++i) out->push_back(s.pick(logits.data(), 50));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {0.0f, std::log(3.0f)};
  Sampler s({.temperature = 1, .seed = 5});
  int second = 0;
  for (int i = 0; i < 4000; ++i) second += s.pick(logits.data(), 2);
  // 3/4 expected; four standard deviations of sqrt(4000 * 3/16).
  EXPECT_NEAR(second, 3000, 4 * std::sqrt(750.0));
}

}  // namespace
}  // namespace quern::smoke
