#include "jit/config_name.h"
#include "jit/quantize_rows_avx512.h"

namespace quern::jit {

std::string to_string(const QuantizeRowsAvx512Config& config) {
  std::string name = "quantize_rows.avx512.";
  name += to_string(config.a);
  name += "s8.pad" + std::to_string(config.pad);
  if (config.quads) name += ".quads";
  if (config.poison) name += ".poison";
  return name;
}

std::optional<QuantizeRowsAvx512Config> parse_quantize_rows_avx512(std::string_view name) {
  const auto words = split_name(name);
  if (words.size() < 4) return std::nullopt;
  const auto types = parse_dtypes(words[2]);
  const auto pad = parse_field(words[3], "pad");
  if (!types || types->size() != 2 || !pad) return std::nullopt;
  const QuantizeRowsAvx512Config config{(*types)[0], *pad, words.back() == "poison",
                                        words.size() > 4 && words[4] == "quads"};
  if (to_string(config) != name) return std::nullopt;
  return config;
}

const char* invalid(const QuantizeRowsAvx512Config& config) {
  if (config.a != DType::kBF16 && config.a != DType::kF32 && config.a != DType::kS8) {
    return "a must be bf16, f32 or s8";
  }
  if (config.quads && config.a == DType::kS8) return "s8 rows are copied as they are: no quads";
  if (config.pad != 1 && config.pad != 4 && config.pad != 64) return "pad must be 1, 4 or 64";
  return nullptr;
}

}  // namespace quern::jit
