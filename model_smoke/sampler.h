#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace quern::smoke {

/// Picks the next token. Temperature 0 takes the largest logit; else the softmax of logits /
/// temperature, cut to the top_k likeliest (0: all) and then to the fewest that reach top_p
/// together. The same seed gives the same tokens for the same logits.
class Sampler {
 public:
  struct Options {
    double temperature = 0;
    int64_t top_k = 0;
    double top_p = 1;
    uint64_t seed = 0;
  };
  explicit Sampler(const Options& options) : options_(options), random_(options.seed) {}

  int32_t pick(const float* logits, int64_t vocab);

 private:
  Options options_;
  std::mt19937_64 random_;
  std::vector<int32_t> order_;
  std::vector<double> weight_;
};

}  // namespace quern::smoke
