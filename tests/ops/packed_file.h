#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ops/group_layout.h"
#include "ops/packed_weights_builder.h"
#include "ops/weight_packing.h"
#include "quern/packed_weights.h"
#include "tests/support/rng.h"

/// Files of packed weights as ops/README.md describes them, written down a second time: nothing
/// here comes from ops/packed_weights_file.h.
namespace quern::test {

inline constexpr size_t kFilePage = 4096;

inline uint64_t file_check(const char* lines, size_t bytes) {
  const auto mix = [](uint64_t state, uint64_t word) {
    state = (state ^ word) * 0x9e3779b97f4a7c15u;
    return state ^ (state >> 32);
  };
  uint64_t lanes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word;
    std::memcpy(&word, lines + at, 8);
    uint64_t& lane = lanes[at / 8 % 8];
    lane = mix(lane, word);
  }
  uint64_t folded = 0;
  for (const uint64_t lane : lanes) folded = mix(folded, lane);
  return mix(folded, bytes / 64);
}

/// A file's bytes with access to the header's fields by their documented offsets.
struct FileImage {
  std::string bytes;

  template <typename T>
  T get(size_t at) const {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  template <typename T>
  void set(size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
  /// Makes the header's checksum right again, as a program that writes nonsense on purpose would.
  void seal() {
    set<uint64_t>(104, 0);
    set<uint64_t>(104, file_check(bytes.data(), kFilePage));
  }
};

/// Weights of any bytes, but for the columns, which have to be some. `grouped` is empty where the
/// layout has no groups.
inline PackedWeights make_int4_weights(WeightLayout layout, int64_t n, int64_t k,
                                       WeightGroups grouped) {
  const GroupLayout plain = grouped.group == 0 ? GroupLayout() : GroupLayout(k, grouped.group);
  grouped.group = plain.group;
  if (grouped.groups == 0) grouped.groups = plain.groups;
  auto builder = PackedWeightsBuilder::allocate({layout, n, k, 1, grouped});
  EXPECT_TRUE(builder.ok()) << builder.status().message();
  if (!builder.ok()) return {};
  Rng rng(static_cast<uint64_t>(n * 1000 + k));
  for (int64_t i = 0; i < builder->geometry().bytes; ++i) {
    builder->data()[i] = static_cast<std::byte>(rng.next());
  }
  if (grouped.act_order) {
    const int64_t depth = GroupLayout(k, grouped.group, grouped.groups).depth();
    for (int64_t i = 0; i < depth; ++i) {
      const auto column = static_cast<int32_t>(rng.in(-1, k - 1));
      std::memcpy(builder->data() + builder->geometry().order_offset + 4 * i, &column, 4);
    }
  }
  return std::move(*builder).seal();
}

/// Fp8 weights of any bytes.
inline PackedWeights make_fp8_weights(WeightLayout layout, int64_t n, int64_t k, int64_t block_k) {
  return make_int4_weights(layout, n, k, {block_k, 0, DType::kF32, Int4Zeros::kSymmetric, false});
}

/// Weights of every layout without a plan, so on every CPU.
inline PackedWeights make_weights(WeightLayout layout, int64_t n, int64_t k) {
  const uint32_t family = static_cast<uint32_t>(layout) >> 8;
  if (layout == WeightLayout::kE4M3Vnni2N16Batch) return make_int4_weights(layout, n, k, {});
  if (family == 5) return make_fp8_weights(layout, n, k, -1);
  if (family == 4) {
    return make_int4_weights(layout, n, k, {16, 0, DType::kF16, Int4Zeros::kInteger, true});
  }
  Rng rng(static_cast<uint64_t>(n * 1000 + k));
  SerialPool pool;
  const bool int8 = (static_cast<uint32_t>(layout) & 0x0200u) != 0;
  const bool gate_up = (static_cast<uint32_t>(layout) & 2u) != 0;
  const auto elements = static_cast<size_t>(n * k);
  std::vector<uint16_t> values[2];
  std::vector<float> scale(static_cast<size_t>(n));
  for (float& s : scale) s = static_cast<float>(rng.in(1, 100));
  MatrixView parts[2];
  for (int p = 0; p < 2; ++p) {
    values[p].resize(elements);
    for (uint16_t& v : values[p]) v = static_cast<uint16_t>(rng.next() & 0x7fff);
    parts[p] = {values[p].data(), int8 ? DType::kS8 : DType::kBF16, n, k, k};
  }
  const size_t count = gate_up ? 2 : 1;
  const VectorView scales = {scale.data(), DType::kF32, n};
  const Int8Weights int8_parts[2] = {{parts[0], scales}, {parts[1], scales}};
  auto weights = int8 ? pack_int8(pool, {int8_parts, count}) : pack_bf16(pool, {parts, count});
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  return weights.ok() ? *weights : PackedWeights();
}

}  // namespace quern::test
