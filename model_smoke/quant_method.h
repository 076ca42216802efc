#pragma once

#include <cstdint>

namespace quern::smoke {

/// Who wrote the weights, by what the config says.
enum class QuantMethod : uint8_t {
  kNone,
  kW8A8Int8,                ///< quant_method "w8a8_int8"
  kCompressedTensorsInt8,   ///< quant_method "compressed-tensors", format "int-quantized"
  kFp8,                     ///< quant_method "fp8", e4m3: scales of blocks, rows or matrices
  kCompressedTensorsFp8,    ///< quant_method "compressed-tensors", format "float-quantized"
  kModelOptFp8,             ///< quant_method "modelopt", quant_algo FP8 and its kin
  kModelOptNvfp4,           ///< quant_method "modelopt", quant_algo NVFP4
  kModelOptMixed,           ///< quant_method "modelopt", quant_algo MIXED_PRECISION
  kCompressedTensorsNvfp4,  ///< quant_method "compressed-tensors", format "nvfp4-pack-quantized"
  kGptq,                    ///< quant_method "gptq", 4 bits
  kAwq,                     ///< quant_method "awq", version "gemm", 4 bits
  kCompressedTensorsInt4,   ///< quant_method "compressed-tensors", format "pack-quantized", 4 bits
};
const char* to_string(QuantMethod method) noexcept;
constexpr bool is_int4(QuantMethod m) noexcept {
  return m >= QuantMethod::kGptq;
}
constexpr bool is_int8(QuantMethod m) noexcept {
  return m == QuantMethod::kW8A8Int8 || m == QuantMethod::kCompressedTensorsInt8;
}
constexpr bool is_fp8(QuantMethod m) noexcept {
  return m >= QuantMethod::kFp8 && m <= QuantMethod::kModelOptFp8;
}
constexpr bool is_fp4(QuantMethod m) noexcept {
  return m == QuantMethod::kModelOptNvfp4 || m == QuantMethod::kCompressedTensorsNvfp4;
}
constexpr bool is_modelopt(QuantMethod m) noexcept {
  return m >= QuantMethod::kModelOptFp8 && m <= QuantMethod::kModelOptMixed;
}

}  // namespace quern::smoke
