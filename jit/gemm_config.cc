#include "jit/gemm_config.h"

#include <algorithm>
#include <utility>

#include "jit/config_name.h"

namespace quern::jit {
namespace {

constexpr std::string_view kPoison = "poison";
constexpr std::string_view kNoBf16 = "nobf16";

constexpr std::pair<DType, std::string_view> kScaleWords[] = {
    {DType::kF16, "sf16"}, {DType::kBF16, "sbf16"}, {DType::kF32, "sf32"}};
constexpr std::pair<Int4Zeros, std::string_view> kZeroWords[] = {
    {Int4Zeros::kSymmetric, "z8"}, {Int4Zeros::kInteger, "zu8"}, {Int4Zeros::kF32, "zf32"}};
constexpr std::string_view kWideGroups = "wide";

/// "epi=none" or "epi=bias+silu_mul+residual".
std::string epilogue_word(const GemmEpilogue& epilogue) {
  std::string text;
  const auto add = [&text](const char* part) {
    if (!text.empty()) text += '+';
    text += part;
  };
  if (epilogue.bias) add("bias");
  if (epilogue.activation == Activation::kSiluMul) add("silu_mul");
  if (epilogue.residual) add("residual");
  return "epi=" + (text.empty() ? std::string("none") : text);
}

std::optional<GemmEpilogue> parse_epilogue(std::string_view word, DType c) {
  // Eight combinations: comparing with each keeps this the exact inverse of epilogue_word.
  for (int bits = 0; bits < 8; ++bits) {
    const GemmEpilogue e{c, (bits & 1) != 0,
                         (bits & 2) != 0 ? Activation::kSiluMul : Activation::kNone,
                         (bits & 4) != 0};
    if (epilogue_word(e) == word) return e;
  }
  return std::nullopt;
}

/// What every family asks of a config, registers apart.
const char* invalid_rest(const GemmConfig& config) {
  const int nr = config.nr, p = config.prefetch;
  const GemmEpilogue& epilogue = config.epilogue;
  if (p != 0 && p != 1 && p != 2 && p != 4 && p != 4 * nr)
    return "prefetch must be 0, 1, 2, 4 or 4 * nr";
  if (epilogue.c != DType::kBF16 && epilogue.c != DType::kF32) return "c must be bf16 or f32";
  if (epilogue.activation == Activation::kSiluMul && nr % 2 != 0) {
    return "silu_mul needs pairs of gate and up panels: nr must be even";
  }
  return nullptr;
}

}  // namespace

bool GemmName::has(std::string_view option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

std::vector<std::string_view> group_words(const GroupConfig& config) {
  std::vector<std::string_view> words;
  for (const auto& [type, word] : kScaleWords) {
    if (type == config.scale) words.push_back(word);
  }
  for (const auto& [zeros, word] : kZeroWords) {
    if (zeros == config.zeros) words.push_back(word);
  }
  if (config.wide) words.push_back(kWideGroups);
  return words;
}

std::optional<GroupConfig> parse_group_words(DType a, const std::vector<std::string_view>& words) {
  if (words.size() < 2) return std::nullopt;
  GroupConfig config{.a = a};
  for (const auto& [type, word] : kScaleWords) {
    if (word == words[0]) config.scale = type;
  }
  for (const auto& [zeros, word] : kZeroWords) {
    if (word == words[1]) config.zeros = zeros;
  }
  config.wide = words.size() > 2;
  if (group_words(config) != words) return std::nullopt;
  return config;
}

const char* invalid_groups(const GroupConfig& config) {
  if (config.a != DType::kS8 && config.a != DType::kBF16) return "a must be s8 or bf16";
  if (size_of(config.scale) < 2 || config.scale == DType::kS32) {
    return "the scale must be f16, bf16 or f32";
  }
  if (config.subtracted && config.zeros == Int4Zeros::kF32) {
    return "floating-point zeros are not subtracted from codes";
  }
  if (config.wide &&
      (config.a != DType::kS8 || config.zeros != Int4Zeros::kInteger || config.subtracted)) {
    return "wide groups are those of s8 rows and integer zeros that are yet to be subtracted";
  }
  return nullptr;
}

const char* invalid_codes(DType b, bool vbmi) {
  if (b != DType::kBF16 && b != DType::kU8 && b != DType::kE4M3)
    return "b must be bf16, u8 or e4m3";
  return vbmi || b == DType::kE4M3 ? nullptr : "vbmi is for e4m3";
}

std::string to_string(const GemmName& name) {
  const GemmConfig& c = name.config;
  std::string text(name.family);
  text += '.';
  text += to_string(name.a);
  text += to_string(name.b);
  text += to_string(c.epilogue.c);
  text += ".mr" + std::to_string(c.mr) + ".nr" + std::to_string(c.nr);
  text += ".pf" + std::to_string(c.prefetch) + '.' + epilogue_word(c.epilogue);
  for (const std::string_view option : name.options) {
    text += '.';
    text += option;
  }
  const auto add = [&text](std::string_view word) {
    text += '.';
    text += word;
  };
  if (!c.bf16) add(kNoBf16);
  if (c.poison) add(kPoison);
  return text;
}

std::optional<GemmName> parse_gemm_name(std::string_view text) {
  const auto words = split_name(text);
  if (words.size() < 7) return std::nullopt;
  const auto types = parse_dtypes(words[2]);
  const auto mr = parse_field(words[3], "mr");
  const auto nr = parse_field(words[4], "nr");
  const auto prefetch = parse_field(words[5], "pf");
  if (!types || types->size() != 3 || !mr || !nr || !prefetch) return std::nullopt;
  const auto epilogue = parse_epilogue(words[6], (*types)[2]);
  if (!epilogue) return std::nullopt;
  GemmName name;
  name.family = text.substr(0, words[0].size() + 1 + words[1].size());
  name.a = (*types)[0];
  name.b = (*types)[1];
  auto end = words.end();
  const auto drop_last = [&](std::string_view word) {
    const bool is_last = end - words.begin() > 7 && *(end - 1) == word;
    if (is_last) --end;
    return is_last;
  };
  const bool poison = drop_last(kPoison);
  const bool bf16 = !drop_last(kNoBf16);
  name.config = {*mr, *nr, *prefetch, poison, *epilogue, bf16};
  name.options.assign(words.begin() + 7, end);
  return name;
}

const char* invalid_shape(const GemmConfig& config, int others) {
  // The epilogue's silu_mul needs three registers beside the accumulators.
  constexpr int kEpilogueOthers = 4;
  const int mr = config.mr, nr = config.nr;
  if (mr < 1 || mr > 16) return "mr must be 1..16";
  if (nr < 1 || nr > 4) return "nr must be 1..4";
  if (mr * nr + (others > kEpilogueOthers ? others : kEpilogueOthers) > 32) {
    return "mr * nr accumulators and the operands must fit 32 vector registers";
  }
  return invalid_rest(config);
}

const char* invalid_tiles(const GemmConfig& config) {
  if (config.mr != 16 && config.mr != 32) return "mr must be 16 or 32: whole tiles of rows";
  if (config.nr < 1 || config.nr > 4) return "nr must be 1..4";
  if (config.mr * config.nr > 64) return "mr * nr must be at most four tiles of accumulators";
  return invalid_rest(config);
}

}  // namespace quern::jit
