#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/kernel.h"
#include "quern/status.h"

namespace quern::jit {

/// Panels of packed NVFP4 weights become panels of bf16 (WeightLayout::kBf16Vnni2N16), block scales
/// applied: once for all rows of A. A line of 64 bytes, eight depths of 16 columns, becomes four
/// lines of pairs of depths. Every product is exact; a code of -0 becomes +0.
struct Nvfp4DecodeAvx512Config {
  bool poison = false;

  auto operator<=>(const Nvfp4DecodeAvx512Config&) const = default;
};

/// Strides in bytes. At least one panel and block.
struct Nvfp4DecodeArgs {
  const void* b = nullptr;  ///< first panel, at the first block of this call
  int64_t panel_stride = 0;
  int64_t panels = 0;
  int64_t blocks = 0;           ///< of 16 depths: two lines
  const void* scale = nullptr;  ///< [blocks][16] bytes of the first panel
  int64_t scale_stride = 0;
  void* to = nullptr;  ///< 64-byte aligned
  int64_t to_stride = 0;
  /// Lines are fetched so many bytes ahead; any value is legal.
  int64_t ahead = 0;
};

/// "nvfp4_decode.avx512.e2m1bf16", then ".poison" where set.
std::string to_string(const Nvfp4DecodeAvx512Config& config);
std::optional<Nvfp4DecodeAvx512Config> parse_nvfp4_decode_avx512(std::string_view name);
/// Null: every config is legal.
const char* invalid(const Nvfp4DecodeAvx512Config& config);
Result<GeneratedCode> generate(const Nvfp4DecodeAvx512Config& config);

}  // namespace quern::jit
