#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <vector>

#include "jit/int4_pack_avx512.h"
#include "jit/kernel.h"
#include "jit/nvfp4_decode_avx512.h"
#include "jit/quantize_rows_avx512.h"
#include "quern/isa.h"
#include "tests/jit/gemm_config_matrix.h"
#include "tests/jit/grouped_config_matrix.h"

namespace quern::jit {

// Every config of every generator that is worth a test, illegal ones included. A new generator adds
// its matrix here and a line to every_kernel(): that puts it under all tests that hold for every
// kernel.

inline std::vector<QuantizeRowsAvx512Config> all_quantize_rows() {
  std::vector<QuantizeRowsAvx512Config> all;
  for (DType a : {DType::kBF16, DType::kF32, DType::kS8, DType::kU8, DType::kF16}) {
    for (int pad : {0, 1, 4, 16, 64}) {
      for (bool poison : {false, true}) {
        for (bool quads : {false, true}) all.push_back({a, pad, poison, quads});
      }
    }
  }
  return all;
}

inline std::vector<Int4PackAvx512Config> all_int4_pack() {
  std::vector<Int4PackAvx512Config> all;
  for (int storage = 0; storage <= 3; ++storage) {
    for (int by = 0; by <= 2; ++by) {
      for (bool poison : {false, true}) {
        all.push_back({static_cast<Int4Storage>(storage), static_cast<Int4PackBy>(by), poison});
      }
    }
  }
  return all;
}

inline std::vector<Nvfp4DecodeAvx512Config> all_nvfp4_decode() {
  return {{false}, {true}};
}

/// Which argument struct a kernel takes.
enum class KernelArgs { kGemm, kQuantizeRows, kInt4Pack, kGroupedDecode, kNvfp4Decode };

/// What tests of all kernels need to know of one.
struct AnyKernel {
  std::string name;
  KernelArgs args = KernelArgs::kGemm;
  IsaLevel level = IsaLevel::kAvx512;
  bool bf16 = false;  ///< may use AVX512-BF16: bf16 products, or rounding to bf16
  bool vbmi = false;  ///< uses AVX512-VBMI
  int rows = 0;       ///< mr of a GEMM kernel
  std::function<Result<GeneratedCode>()> make;
};

template <typename Config>
concept NotAGemm = !std::derived_from<Config, GemmConfig>;

constexpr KernelArgs args_of(const GemmConfig&) {
  return KernelArgs::kGemm;
}
constexpr KernelArgs args_of(const QuantizeRowsAvx512Config&) {
  return KernelArgs::kQuantizeRows;
}
constexpr KernelArgs args_of(const Int4PackAvx512Config&) {
  return KernelArgs::kInt4Pack;
}
constexpr KernelArgs args_of(const GroupedDecodeAvx512Config&) {
  return KernelArgs::kGroupedDecode;
}
constexpr KernelArgs args_of(const Nvfp4DecodeAvx512Config&) {
  return KernelArgs::kNvfp4Decode;
}
inline bool uses_bf16(const GemmConfig& config) {
  return config.bf16 && config.epilogue.c == DType::kBF16;
}
inline bool uses_bf16(const Bf16GemmAvx512Config&) {
  return true;
}
inline bool uses_bf16(const Nvfp4GemmAvx512Config& config) {
  return !config.fma || uses_bf16(static_cast<const GemmConfig&>(config));
}
inline bool uses_bf16(const GroupedGemmAvx512Config& config) {
  const bool dots = config.groups.a == DType::kBF16 && !config.fma;
  return dots || uses_bf16(static_cast<const GemmConfig&>(config));
}
template <NotAGemm Config>
bool uses_bf16(const Config&) {
  return false;
}

template <typename Config>
constexpr bool uses_vbmi(const Config&) {
  return false;
}
inline bool uses_vbmi(const GroupedGemmAvx512Config& config) {
  return config.vbmi && is_float8(config.b);
}
template <typename Config>
requires std::same_as<Config, Bf16GemmAvx512Config> ||
    std::same_as<Config, Bf16GemmFmaAvx512Config> || std::same_as<Config, Bf16GemmAmxConfig>
bool uses_vbmi(const Config& config) {
  return config.vbmi && config.b == DType::kE4M3;
}
inline bool uses_vbmi(const GroupedDecodeAvx512Config& config) {
  return config.vbmi && is_float8(config.from);
}

constexpr IsaLevel level_of(const GemmConfig&) {
  return IsaLevel::kAvx512;
}
constexpr IsaLevel level_of(const Int8GemmAmxConfig&) {
  return IsaLevel::kAmx;
}
constexpr IsaLevel level_of(const Bf16GemmAmxConfig&) {
  return IsaLevel::kAmx;
}
constexpr IsaLevel level_of(const GroupedGemmAmxConfig&) {
  return IsaLevel::kAmx;
}
template <NotAGemm Config>
constexpr IsaLevel level_of(const Config&) {
  return IsaLevel::kAvx512;
}

constexpr int rows_of(const GemmConfig& config) {
  return config.mr;
}
template <NotAGemm Config>
constexpr int rows_of(const Config&) {
  return 0;
}

template <typename Config>
void add_legal(const std::vector<Config>& configs, std::vector<AnyKernel>* out) {
  for (const Config& config : configs) {
    if (invalid(config) != nullptr) continue;
    out->push_back({to_string(config), args_of(config), level_of(config), uses_bf16(config),
                    uses_vbmi(config), rows_of(config), [config] { return generate(config); }});
  }
}

/// Every legal config, some thousands.
inline std::vector<AnyKernel> every_kernel() {
  std::vector<AnyKernel> all;
  add_legal(all_int8(), &all);
  add_legal(all_bf16(), &all);
  add_legal(all_bf16_fma(), &all);
  add_legal(all_int8_amx(), &all);
  add_legal(all_bf16_amx(), &all);
  add_legal(all_quantize_rows(), &all);
  add_legal(all_int4_pack(), &all);
  add_legal(all_grouped(all_epilogues()), &all);
  add_legal(all_grouped_amx(all_epilogues()), &all);
  add_legal(all_grouped_decode(), &all);
  add_legal(all_nvfp4(), &all);
  add_legal(all_nvfp4_decode(), &all);
  return all;
}

}  // namespace quern::jit
