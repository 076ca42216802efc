#include "model_smoke/tensor_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "model_smoke/input_error.h"
#include "quern/dtype.h"

namespace quern::smoke {
namespace {

template <typename T>
T load(const std::byte* p) noexcept {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Weights are scanned whole while a model loads, so the common case (all finite) is a plain
// reduction over a block, which the compiler vectorises; only a bad block is searched.
template <typename T, typename Bad>
int64_t first_bad(const std::byte* data, int64_t count, Bad bad) noexcept {
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    unsigned any = 0;
    for (int64_t i = begin; i < end; ++i) {
      any |= static_cast<unsigned>(bad(load<T>(data + i * static_cast<int64_t>(sizeof(T)))));
    }
    if (!any) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (bad(load<T>(data + i * static_cast<int64_t>(sizeof(T))))) return i;
    }
  }
  return -1;
}

float half_to_float(uint16_t h) noexcept {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::string number_text(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "infinity" : "-infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

std::string hex_text(const std::byte* p, int bytes) {
  std::string s = "0x";
  for (int i = bytes - 1; i >= 0; --i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(p[i]));
    s += digits;
  }
  return s;
}

/// All bits of an element but those of its signs.
uint64_t magnitude_mask(FileDType t) noexcept {
  switch (t) {
    case FileDType::kF64:
      return 0x7fffffffffffffff;
    case FileDType::kF32:
      return 0x7fffffff;
    case FileDType::kBF16:
    case FileDType::kF16:
      return 0x7fff;
    case FileDType::kF8E4M3:
    case FileDType::kF8E5M2:
      return 0x7f;
    case FileDType::kU8:
      return 0x77;
    default:
      return ~uint64_t{0};
  }
}

bool is_zero(const std::byte* row, int64_t count, size_t size, uint64_t mask) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, row + static_cast<size_t>(i) * size, size);
    if (bits & mask) return false;
  }
  return true;
}

}  // namespace

int64_t rows_of(const TensorView& t) noexcept {
  return t.shape.empty() ? 1 : t.shape[0];
}

BlankRows blank_rows(const TensorView& t, bool zeros_only) noexcept {
  constexpr int64_t kNoChance = 16;
  BlankRows blank;
  const auto size = static_cast<size_t>(bits_of(t.dtype) / 8);
  if (bits_of(t.dtype) % 8 != 0 || t.elements() == 0) return blank;
  if (t.shape.size() < 2 && !zeros_only) return blank;
  const int64_t rows = rows_of(t), count = t.elements() / rows;
  const bool pairs = t.dtype == FileDType::kU8;
  const bool may_be_one = !zeros_only && count * (pairs ? 2 : 1) >= kNoChance;
  const uint64_t mask = magnitude_mask(t.dtype);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = t.data + static_cast<size_t>(r * count) * size;
    const auto pair = static_cast<unsigned>(row[0]);
    const bool one = may_be_one && (!pairs || (pair & 15) == pair >> 4) &&
                     std::memcmp(row, row + size, static_cast<size_t>(count - 1) * size) == 0;
    if (one || is_zero(row, count, size, mask)) blank.add(r);
  }
  return blank;
}

std::string blank_rows_text(const BlankRows& blank, int64_t rows) {
  const bool one = blank.count == 1, whole = blank.last - blank.first + 1 == blank.count;
  std::string text = std::to_string(blank.count) + " of " + std::to_string(rows) +
                     (one ? " rows holds one value: row " : " rows hold one value each: rows ") +
                     std::to_string(blank.first);
  if (!one) text += " to " + std::to_string(blank.last);
  return text + (whole ? "" : ", not all of them");
}

int64_t first_non_finite(const TensorView& t) noexcept {
  const int64_t n = t.elements();
  const auto all_ones = [](auto mask) {
    return [mask](decltype(mask) v) { return (v & mask) == mask; };
  };
  switch (t.dtype) {
    case FileDType::kF32:
      return first_bad<uint32_t>(t.data, n, all_ones(uint32_t{0x7f800000}));
    case FileDType::kC64:
      return first_bad<uint64_t>(t.data, n, [](uint64_t v) {
        return (v & 0x7f800000u) == 0x7f800000u || ((v >> 32) & 0x7f800000u) == 0x7f800000u;
      });
    case FileDType::kF64:
      return first_bad<uint64_t>(t.data, n, all_ones(uint64_t{0x7ff0000000000000}));
    case FileDType::kBF16:
      return first_bad<uint16_t>(t.data, n, all_ones(uint16_t{0x7f80}));
    case FileDType::kF16:
      return first_bad<uint16_t>(t.data, n, all_ones(uint16_t{0x7c00}));
    case FileDType::kF8E4M3:
      return first_bad<uint8_t>(t.data, n, all_ones(uint8_t{0x7f}));
    case FileDType::kF8E5M2:
      return first_bad<uint8_t>(t.data, n, all_ones(uint8_t{0x7c}));
    case FileDType::kF8E8M0:
      return first_bad<uint8_t>(t.data, n, all_ones(uint8_t{0xff}));
    case FileDType::kF8E4M3Fnuz:
    case FileDType::kF8E5M2Fnuz:
      return first_bad<uint8_t>(t.data, n, [](uint8_t v) { return v == 0x80; });
    default:
      return -1;
  }
}

bool is_constant(const TensorView& t) noexcept {
  const auto bytes = static_cast<uint64_t>(bits_of(t.dtype) / 8);
  if (bits_of(t.dtype) % 8 != 0 || t.bytes <= bytes) return false;
  // Equal to itself moved by one element: every element equals the next.
  return std::memcmp(t.data, t.data + bytes, t.bytes - bytes) == 0;
}

std::string value_text(const TensorView& t, int64_t index) {
  const int bytes = bits_of(t.dtype) / 8;
  if (bits_of(t.dtype) % 8 != 0) return "?";
  const std::byte* p = t.data + index * bytes;
  switch (t.dtype) {
    case FileDType::kF32:
      return number_text(load<float>(p));
    case FileDType::kF64:
      return number_text(load<double>(p));
    case FileDType::kBF16:
      return number_text(bfloat16{load<uint16_t>(p)}.to_float());
    case FileDType::kF16:
      return number_text(half_to_float(load<uint16_t>(p)));
    case FileDType::kI8:
      return std::to_string(load<int8_t>(p));
    case FileDType::kU8:
      return std::to_string(load<uint8_t>(p));
    case FileDType::kI32:
      return std::to_string(load<int32_t>(p));
    case FileDType::kI64:
      return std::to_string(load<int64_t>(p));
    default:
      return hex_text(p, bytes);
  }
}

std::vector<float> to_f32(const TensorView& t) {
  std::vector<float> out(static_cast<size_t>(t.elements()));
  const auto convert = [&](auto decode) {
    using T = decltype(decode.word);
    for (size_t i = 0; i < out.size(); ++i) out[i] = decode(load<T>(t.data + i * sizeof(T)));
  };
  struct FromF32 {
    float word = 0;
    float operator()(float v) const { return v; }
  };
  struct FromBf16 {
    uint16_t word = 0;
    float operator()(uint16_t v) const { return bfloat16{v}.to_float(); }
  };
  struct FromF16 {
    uint16_t word = 0;
    float operator()(uint16_t v) const { return half_to_float(v); }
  };
  switch (t.dtype) {
    case FileDType::kF32:
      convert(FromF32{});
      break;
    case FileDType::kBF16:
      convert(FromBf16{});
      break;
    case FileDType::kF16:
      convert(FromF16{});
      break;
    default:
      throw InputError(t.file, t.name, "dtype F32, BF16 or F16", describe(t));
  }
  return out;
}

}  // namespace quern::smoke
