#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/jit/grouped_block.h"

namespace quern::jit {

// What grouped_block.h declares: scales, zeros and sums of groups as kernels read them.

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

inline std::vector<std::byte> GroupedBlock::scales(int gap) const {
  if (config.scale == DType::kF32) {
    return bytes_of(by_panel<float>(scale, gap, [](float x) { return x; }));
  }
  return bytes_of(by_panel<uint16_t>(scale, gap, [this](float x) {
    return config.scale == DType::kBF16 ? bf16_bits(x) : f16_bits(x);
  }));
}

inline std::vector<std::byte> GroupedBlock::zeros(int gap) const {
  if (config.zeros == Int4Zeros::kSymmetric) return {};
  if (config.zeros == Int4Zeros::kF32) {
    return bytes_of(by_panel<float>(zero, gap, [](float x) { return x; }));
  }
  return bytes_of(by_panel<uint8_t>(zero, gap, [](float x) { return static_cast<uint8_t>(x); }));
}

/// [groups][rows + gap] words, as GemmArgs::group_sum has them.
inline std::vector<uint32_t> GroupedBlock::group_sums(int gap) const {
  if (config.folds_nothing()) return {};
  std::vector<uint32_t> out(groups == 0 ? 0 : size(groups * (rows + gap) - gap), 0x7fc00000u);
  for (int g = 0; g < groups; ++g) {
    for (int m = 0; m < rows; ++m) {
      const auto sum = static_cast<int32_t>(row_sum(m, g));
      const auto f32 = static_cast<float>(sum);
      const int32_t s32 = config.zeros == Int4Zeros::kSymmetric ? -8 * sum : sum;
      const bool words =
          config.a == DType::kS8 && (config.zeros == Int4Zeros::kSymmetric || config.wide);
      std::memcpy(&out[size(g * (rows + gap) + m)], words ? static_cast<const void*>(&s32) : &f32,
                  4);
    }
  }
  return out;
}

}  // namespace quern::jit
