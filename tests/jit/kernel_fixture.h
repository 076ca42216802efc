#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "jit/code_memory.h"
#include "jit/isa.h"
#include "jit/kernel_cache.h"

namespace quern::jit {

/// Runs kernels alone, without ops, on the machine's own instructions.
class KernelTest : public ::testing::Test {
 public:
  template <typename Config>
  KernelHandle make(const Config& config) {
    auto kernel = cache_.get(to_string(config), [&] { return generate(config); });
    EXPECT_TRUE(kernel.ok()) << to_string(config) << ": " << kernel.status().message();
    return kernel.ok() ? *kernel : nullptr;
  }

 protected:
  void SetUp() override {
    features_ = detect(system_cpu(), IsaLevel::kAvx512, nullptr);
    if (features_.level < IsaLevel::kAvx512) GTEST_SKIP() << "not run: no usable AVX-512 with VNNI";
  }

  IsaFeatures features_;

 private:
  KernelCache cache_{CodeMemory()};
};

/// splitmix64: the test's own numbers.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int8_t s8() { return static_cast<int8_t>(next()); }
  /// A small integer that bf16 holds exactly, in [-8, 8].
  float small() { return static_cast<float>(static_cast<int>(next() % 17) - 8); }

 private:
  uint64_t state_;
};

inline uint16_t bf16_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>(u >> 16);
}

}  // namespace quern::jit
