#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/gemm_args.h"
#include "jit/gemm_config.h"
#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// bf16 rows times packed NVFP4 weights that are decoded exactly in registers, with the bits of
/// bf16_gemm.avx512 on what nvfp4_decode_avx512 makes of them. For few rows: each block of them
/// decodes all weights. Argument struct: GemmArgs with col_scale, the scales of whole matrices, and
/// with scale and scale_stride: [blocks][16] bytes of the first panel and of this call's first
/// block.
struct Nvfp4GemmAvx512Config : GemmConfig {
  /// As bf16_gemm_fma.avx512: A is the f32 copy of bf16 rows, zero-padded to a multiple of two
  /// elements, and GemmArgs::control is used.
  bool fma = false;

  auto operator<=>(const Nvfp4GemmAvx512Config&) const = default;
};

/// "nvfp4_gemm.avx512.bf16e2m1bf16.mr4.nr4.pf16.epi=none"; "f32e2m1bf16" with fma.
std::string to_string(const Nvfp4GemmAvx512Config& config);
std::optional<Nvfp4GemmAvx512Config> parse_nvfp4_gemm_avx512(std::string_view name);

/// Registers of a block beside its accumulators, as GemmFacts counts them.
struct Nvfp4Registers {
  int panel = 0;
  int other = 0;
};
Nvfp4Registers nvfp4_registers(const Nvfp4GemmAvx512Config& config);

/// Null where the config is legal, else the rule it breaks.
const char* invalid(const Nvfp4GemmAvx512Config& config);

Result<GeneratedCode> generate(const Nvfp4GemmAvx512Config& config);

}  // namespace quern::jit
