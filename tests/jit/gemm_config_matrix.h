#pragma once

#include <vector>

#include "jit/bf16_gemm_amx.h"
#include "jit/bf16_gemm_avx512.h"
#include "jit/bf16_gemm_fma_avx512.h"
#include "jit/int8_gemm_amx.h"
#include "jit/int8_gemm_avx512.h"
#include "jit/nvfp4_gemm_avx512.h"

namespace quern::jit {

// The part of config_matrix.h about GEMM kernels with one scale a column or none.

inline std::vector<GemmEpilogue> all_epilogues() {
  std::vector<GemmEpilogue> all;
  for (DType c : {DType::kBF16, DType::kF32}) {
    for (int bits = 0; bits < 8; ++bits) {
      all.push_back({c, (bits & 1) != 0, (bits & 2) != 0 ? Activation::kSiluMul : Activation::kNone,
                     (bits & 4) != 0});
    }
  }
  return all;
}

template <typename Config>
std::vector<Config> with_shapes(const Config& base) {
  std::vector<Config> all;
  for (int mr = 0; mr <= 17; ++mr) {
    for (int nr = 0; nr <= 5; ++nr) {
      for (const GemmEpilogue& epilogue : all_epilogues()) {
        Config config = base;
        config.mr = mr;
        config.nr = nr;
        config.epilogue = epilogue;
        all.push_back(config);
      }
    }
  }
  return all;
}

inline std::vector<Int8GemmAvx512Config> all_int8() {
  std::vector<Int8GemmAvx512Config> all;
  for (bool wide : {false, true}) {
    for (int prefetch : {0, 2, 16}) {
      Int8GemmAvx512Config base{{.prefetch = prefetch, .poison = wide}, wide};
      base.bf16 = prefetch != 2;
      const auto some = with_shapes(base);
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

template <typename Config>
std::vector<Config> all_bf16_of() {
  std::vector<Config> all;
  for (DType b : {DType::kBF16, DType::kU8, DType::kE4M3}) {
    for (int prefetch : {0, 1, 4, 8}) {
      Config base{{.prefetch = prefetch, .poison = prefetch != 0}, b};
      base.bf16 = prefetch != 1;
      base.scaled = prefetch == 4;  // with codes that is illegal
      base.vbmi = b != DType::kE4M3 || prefetch != 8;
      const auto some = with_shapes(base);
      all.insert(all.end(), some.begin(), some.end());
      if (!base.scaled || b == DType::kBF16) continue;
      base.scaled = false;
      const auto codes = with_shapes(base);
      all.insert(all.end(), codes.begin(), codes.end());
    }
  }
  return all;
}
inline std::vector<Bf16GemmAvx512Config> all_bf16() {
  return all_bf16_of<Bf16GemmAvx512Config>();
}
inline std::vector<Bf16GemmFmaAvx512Config> all_bf16_fma() {
  return all_bf16_of<Bf16GemmFmaAvx512Config>();
}

/// As with_shapes, in rows of tiles, and some that are not.
template <typename Config>
std::vector<Config> with_tiles(const Config& base) {
  std::vector<Config> all;
  for (int mr : {0, 1, 15, 16, 17, 32, 48}) {
    for (int nr = 0; nr <= 5; ++nr) {
      for (const GemmEpilogue& epilogue : all_epilogues()) {
        for (int prefetch : {0, 2, 4 * nr}) {
          Config config = base;
          config.mr = mr;
          config.nr = nr;
          config.prefetch = prefetch;
          config.poison = prefetch == 2;
          config.bf16 = prefetch != 0;
          config.epilogue = epilogue;
          all.push_back(config);
        }
      }
    }
  }
  return all;
}
inline std::vector<Int8GemmAmxConfig> all_int8_amx() {
  std::vector<Int8GemmAmxConfig> all = with_tiles(Int8GemmAmxConfig{});
  const auto wide = with_tiles(Int8GemmAmxConfig{{}, true});
  all.insert(all.end(), wide.begin(), wide.end());
  return all;
}
inline std::vector<Bf16GemmAmxConfig> all_bf16_amx() {
  std::vector<Bf16GemmAmxConfig> all = with_tiles(Bf16GemmAmxConfig{});
  const auto codes = with_tiles(Bf16GemmAmxConfig{{}, DType::kU8});
  all.insert(all.end(), codes.begin(), codes.end());
  for (const bool vbmi : {true, false}) {
    const auto floats = with_tiles(Bf16GemmAmxConfig{{}, DType::kE4M3, false, vbmi});
    all.insert(all.end(), floats.begin(), floats.end());
  }
  for (const DType b : {DType::kBF16, DType::kU8}) {
    const auto scaled = with_tiles(Bf16GemmAmxConfig{{}, b, true});
    all.insert(all.end(), scaled.begin(), scaled.end());
  }
  return all;
}

inline std::vector<Nvfp4GemmAvx512Config> all_nvfp4() {
  std::vector<Nvfp4GemmAvx512Config> all;
  for (bool fma : {false, true}) {
    for (int prefetch : {0, 1, 4, 8, 16}) {
      Nvfp4GemmAvx512Config base{{.prefetch = prefetch, .poison = prefetch != 0}, fma};
      base.bf16 = prefetch != 1;
      const auto some = with_shapes(base);
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

}  // namespace quern::jit
