#pragma once

#include <vector>

#include "jit/grouped_decode_avx512.h"
#include "jit/grouped_gemm_amx.h"
#include "jit/grouped_gemm_avx512.h"

namespace quern::jit {

// The part of config_matrix.h whose weights have groups. Every field has all of its values, and
// every two of those that meet in the generators' conditions stand together; their product with all
// shapes and epilogues would be 100,000 kernels.

/// All of them, those that are not allowed too.
inline std::vector<GroupConfig> all_groups() {
  std::vector<GroupConfig> all;
  for (DType a : {DType::kS8, DType::kBF16}) {
    for (DType scale : {DType::kF16, DType::kBF16, DType::kF32}) {
      for (Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
        for (bool wide : {false, true}) {
          for (bool subtracted : {false, true}) all.push_back({a, scale, zeros, wide, subtracted});
        }
      }
    }
  }
  return all;
}

/// Whether one more row would not fit the registers: shapes for which the budget in invalid() must
/// be exact.
inline bool is_fullest(GroupedGemmAvx512Config config) {
  if (invalid(config) != nullptr) return false;
  ++config.mr;
  return invalid(config) != nullptr;
}

/// All shapes of `base` that are illegal or full, and every fourth of the others; epilogues,
/// prefetch, bf16 and poison in turn. `turn` goes on from call to call.
inline void add_grouped_shapes(const GroupedGemmAvx512Config& base,
                               const std::vector<GemmEpilogue>& ends, size_t* turn,
                               std::vector<GroupedGemmAvx512Config>* all) {
  for (int mr = 0; mr <= 17; ++mr) {
    for (int nr = 0; nr <= 5; ++nr) {
      const size_t i = (*turn)++;
      const int prefetches[] = {0, 4 * nr, 1, 2, 4};
      GroupedGemmAvx512Config config = base;
      config.mr = mr;
      config.nr = nr;
      // Numbers of turns without a common factor, so that all pairs come about.
      config.epilogue = ends[i * 7 % ends.size()];
      if (nr % 2 != 0 && i % 5 != 0) config.epilogue.activation = Activation::kNone;
      config.prefetch = prefetches[i % 5];
      config.bf16 = i % 3 != 0;
      config.poison = i % 11 < 6;
      if (i % 4 == 0 || invalid(config) != nullptr || is_fullest(config)) all->push_back(config);
    }
  }
}

/// Codes that are floats go with few groups only.
inline bool is_worth_a_test(const GroupedGemmAvx512Config& config) {
  const GroupConfig& g = config.groups;
  if (config.tile_lines == 8 && !is_float8(config.b)) return g.scale == DType::kF32;
  if (config.b == DType::kU4 || !is_packed(config.b)) return config.vbmi || g.scale == DType::kF32;
  return (g.a == DType::kBF16 && !g.wide && !g.subtracted && g.scale != DType::kF16) ||
         (g.scale == DType::kF32 && config.vbmi);
}

inline std::vector<GroupedGemmAvx512Config> all_grouped(const std::vector<GemmEpilogue>& ends) {
  std::vector<GroupedGemmAvx512Config> all;
  size_t turn = 0;
  for (const GroupConfig& groups : all_groups()) {
    for (DType b : {DType::kU4, DType::kU8, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kE2M1,
                    DType::kE8M0}) {
      for (bool fma : {false, true}) {
        for (int tile_lines : {0, 1, 2, 3, 4, 8}) {
          for (bool vbmi : {true, false}) {
            GroupedGemmAvx512Config base;
            base.b = b;
            base.groups = groups;
            base.fma = fma;
            base.tile_lines = tile_lines;
            base.vbmi = vbmi;
            if (is_worth_a_test(base)) add_grouped_shapes(base, ends, &turn, &all);
          }
        }
      }
    }
  }
  return all;
}

/// Shapes, groups and depths of a tile together; epilogues and the rest in turn.
inline std::vector<GroupedGemmAmxConfig> all_grouped_amx(const std::vector<GemmEpilogue>& ends) {
  std::vector<GroupedGemmAmxConfig> all;
  size_t turn = 0;
  for (const GroupConfig& groups : all_groups()) {
    for (int mr : {0, 1, 15, 16, 17, 32, 48}) {
      for (int nr = 0; nr <= 5; ++nr) {
        for (int tile_depth : {0, 4, 8, 16, 20, 24, 32, 40, 48, 56, 64, 72}) {
          const size_t i = turn++;
          const int prefetches[] = {0, 1, 2, 4, 4 * nr};
          GroupedGemmAmxConfig config;
          config.mr = mr;
          config.nr = nr;
          config.groups = groups;
          config.tile_depth = tile_depth;
          config.epilogue = ends[i * 7 % ends.size()];
          if (nr % 2 != 0 && i % 5 != 0) config.epilogue.activation = Activation::kNone;
          config.prefetch = prefetches[i % 5];
          config.bf16 = i % 3 != 0;
          config.poison = i % 11 < 6;
          all.push_back(config);
        }
      }
    }
  }
  return all;
}

inline std::vector<GroupedDecodeAvx512Config> all_grouped_decode() {
  std::vector<GroupedDecodeAvx512Config> all;
  for (DType from : {DType::kU4, DType::kE4M3, DType::kE5M2, DType::kE2M1, DType::kU8}) {
    for (DType to : {DType::kU8, DType::kBF16, DType::kS8, DType::kF32}) {
      for (Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
        for (bool poison : {false, true}) {
          for (bool vbmi : {false, true}) all.push_back({to, zeros, poison, from, vbmi});
        }
      }
    }
  }
  return all;
}

}  // namespace quern::jit
