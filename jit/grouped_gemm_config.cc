#include "jit/config_name.h"
#include "jit/grouped_gemm_avx512.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "grouped_gemm.avx512";
constexpr std::string_view kFma = "fma";
constexpr const char* kTileLines = "tl";

}  // namespace

std::string to_string(const GroupedGemmAvx512Config& config) {
  GemmName name{kFamily, config.groups.a, config.b, config, group_words(config.groups)};
  const std::string tile = kTileLines + std::to_string(config.tile_lines);
  if (config.tile_lines != 0) name.options.insert(name.options.begin(), tile);
  if (config.fma) name.options.insert(name.options.begin(), kFma);
  if (!config.vbmi) name.options.insert(name.options.begin(), kNoVbmiWord);
  return to_string(name);
}

std::optional<GroupedGemmAvx512Config> parse_grouped_gemm_avx512(std::string_view text) {
  auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const auto drop_first = [&name] { name->options.erase(name->options.begin()); };
  const bool vbmi = !name->has(kNoVbmiWord);
  if (!vbmi) drop_first();
  const bool fma = name->has(kFma);
  if (fma) drop_first();
  int tile_lines = 0;
  if (!name->options.empty()) {
    if (const auto lines = parse_field(name->options[0], kTileLines)) {
      tile_lines = *lines;
      drop_first();
    }
  }
  const auto groups = parse_group_words(name->a, name->options);
  if (!groups) return std::nullopt;
  const GroupedGemmAvx512Config config{name->config, name->b, *groups, fma, tile_lines, vbmi};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

GroupedRegisters grouped_registers(const GroupedGemmAvx512Config& config) {
  // One broadcast of A, and what emit_setup() takes.
  if (config.groups.a == DType::kS8) return {1, config.b == DType::kU4 ? 2 : 1};
  GroupedRegisters r;
  if (is_float8(config.b)) {
    // A panel's two vectors of pairs; the tables. Decoding is over before A is broadcast.
    r = {2, 1 + kFloat8Registers};
  } else if (is_packed(config.b)) {
    const bool zeros = config.groups.zeros == Int4Zeros::kInteger;
    // A panel's codes as bf16, its z, what two pairs have in common; the table, the mask.
    r = zeros ? GroupedRegisters{3, 3} : GroupedRegisters{1, 2};
  }
  if (config.fma) {
    ++r.panel;
    ++r.other;
  }
  if (config.tile_lines != 0) r.element = 3;
  return r;
}

const char* invalid(const GroupedGemmAvx512Config& config) {
  if (const char* rule = invalid_groups(config.groups)) return rule;
  const bool integer = config.groups.a == DType::kS8;
  if (!is_packed(config.b) && config.b != (integer ? DType::kU8 : DType::kBF16)) {
    return "b must be u4, e4m3, e5m2 or e2m1, or u8 with s8 rows, or bf16 with bf16 rows";
  }
  const bool floats = is_packed(config.b) && config.b != DType::kU4;
  if (floats && (integer || config.groups.zeros != Int4Zeros::kSymmetric)) {
    return "floating-point codes are for bf16 rows and have no zero points";
  }
  if (!config.vbmi && !is_float8(config.b)) return "vbmi is for e4m3 and e5m2";
  if (config.groups.subtracted) return "subtracted is for tiles: the other dots want u8 codes";
  if (config.fma && integer) return "fma is for bf16 rows";
  if (!integer && !config.fma && !config.bf16) return "the dot products need AVX512-BF16";
  const int lines = config.tile_lines;
  if (lines != 0 && lines != 1 && lines != 2 && lines != 4 && lines != 8) {
    return "tile_lines must be 0, 1, 2, 4 or 8";
  }
  if (lines == 8 && !is_float8(config.b)) return "tiles of 8 lines are for e4m3 and e5m2";
  if (lines != 0 && (!config.fma || !is_packed(config.b))) {
    return "tile_lines are for fma on packed codes";
  }
  const GroupedRegisters registers = grouped_registers(config);
  const int others = registers.panel * config.nr + registers.other +
                     (registers.element - 1) * config.mr * config.nr;
  // The fold needs three registers beside the accumulators and what is kept.
  return invalid_shape(config, others);
}

}  // namespace quern::jit
