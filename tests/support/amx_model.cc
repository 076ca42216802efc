#include "tests/support/amx_model.h"

#include <cmath>
#include <cstring>

namespace quern::amx_emu {
namespace {

using Wide = __float128;

constexpr float kSmallestNormal = 0x1p-126f;

uint32_t bits_of(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}
float float_of(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

float daz(float f) {
  return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f;
}

/// Nearest even. What would be below the smallest normal, had the exponent no bound, is zero: the
/// rounding is done 64 binades higher up to see it.
float round_and_flush(Wide v) {
  const Wide magnitude = v < 0 ? -v : v;
  if (v == 0 || !(magnitude < kSmallestNormal)) return static_cast<float>(v);
  const float scaled = static_cast<float>(magnitude * 0x1p64f);
  const float result = scaled >= kSmallestNormal * 0x1p64f ? kSmallestNormal : 0.0f;
  return v < 0 ? -result : result;
}

/// The sum of three 24-bit numbers and products of them has fewer than 113 significant bits unless
/// one of them is far too small to matter, so that Wide's own rounding is not seen.
float fused(float a, float b, float c) {
  return round_and_flush(Wide{a} * b + c);
}
float added(float a, float b) {
  return round_and_flush(Wide{daz(a)} + daz(b));
}

float from_bf16(uint32_t half) {
  return daz(float_of(half << 16));
}

float from_fp16(uint32_t half) {
  const int exponent = static_cast<int>(half >> 10 & 31);
  const int fraction = static_cast<int>(half & 1023);
  float value;
  if (exponent == 31) {
    value = fraction ? NAN : INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return half & 0x8000 ? -value : value;
}

int integer(uint8_t byte, bool is_signed) {
  return is_signed && byte >= 128 ? byte - 256 : byte;
}

}  // namespace

void Model::clear() {
  *this = Model();
}

bool Model::usable(int tile) const {
  return configured && rows[tile] > 0 && colsb[tile] > 0;
}

Model::Outcome Model::load_config(const uint8_t* config) {
  if (config[0] == 0) {
    clear();
    return Outcome::kDone;
  }
  bool good = config[0] == 1;
  for (int i = 2; i < 64; ++i) {
    const bool reserved = i < 16 || (i >= 32 && i < 48) || i >= 56;
    if (reserved && config[i] != 0) good = false;
  }
  int new_rows[8], new_colsb[8];
  for (int t = 0; t < 8; ++t) {
    new_colsb[t] = config[16 + 2 * t] + 256 * config[17 + 2 * t];
    new_rows[t] = config[48 + t];
    if (new_colsb[t] > 64 || new_rows[t] > 16) good = false;
    if ((new_colsb[t] == 0) != (new_rows[t] == 0)) good = false;
  }
  if (!good) return Outcome::kProtection;
  clear();
  configured = true;
  start_row = config[1];
  for (int t = 0; t < 8; ++t) {
    rows[t] = new_rows[t];
    colsb[t] = new_colsb[t];
  }
  return Outcome::kDone;
}

void Model::store_config(uint8_t* config) const {
  for (int i = 0; i < 64; ++i) config[i] = 0;
  if (!configured) return;
  config[0] = 1;
  config[1] = static_cast<uint8_t>(start_row);
  for (int t = 0; t < 8; ++t) {
    config[16 + 2 * t] = static_cast<uint8_t>(colsb[t]);
    config[48 + t] = static_cast<uint8_t>(rows[t]);
  }
}

bool Model::dot_allowed(int c, int a, int b) const {
  return usable(a) && usable(b) && usable(c) && a != b && b != c && a != c && colsb[a] % 4 == 0 &&
         colsb[b] % 4 == 0 && colsb[c] % 4 == 0 && rows[c] == rows[a] && colsb[c] == colsb[b] &&
         colsb[a] == 4 * rows[b];
}

void Model::dot(Op op, int c, int a, int b) {
  const std::vector<uint8_t> old = bytes[c];
  bytes[c] = zeros();
  for (int m = 0; m < rows[c]; ++m) {
    for (int n = 0; n < colsb[c] / 4; ++n) {
      uint32_t start;
      std::memcpy(&start, &old[static_cast<size_t>(64 * m + 4 * n)], 4);
      int64_t integers = 0;
      float even = 0, odd = 0;
      for (int k = 0; k < rows[b]; ++k) {
        const uint8_t* x = &bytes[a][static_cast<size_t>(64 * m + 4 * k)];
        const uint8_t* y = &bytes[b][static_cast<size_t>(64 * k + 4 * n)];
        const bool x_signed = op == Op::kTdpbssd || op == Op::kTdpbsud;
        const bool y_signed = op == Op::kTdpbssd || op == Op::kTdpbusd;
        for (int i = 0; i < 4; ++i) integers += integer(x[i], x_signed) * integer(y[i], y_signed);
        const auto convert = op == Op::kTdpbf16ps ? from_bf16 : from_fp16;
        const auto half = [&](const uint8_t* p, int i) { return convert(p[i] + 256u * p[i + 1]); };
        even = fused(half(x, 0), half(y, 0), even);
        odd = fused(half(x, 2), half(y, 2), odd);
      }
      uint32_t result = start + static_cast<uint32_t>(integers);
      if (op == Op::kTdpbf16ps || op == Op::kTdpfp16ps) {
        result = bits_of(added(float_of(start), added(even, odd)));
      }
      std::memcpy(&bytes[c][static_cast<size_t>(64 * m + 4 * n)], &result, 4);
    }
  }
}

Model::Outcome Model::run(const Instruction& i) {
  const auto memory = [&i](int row, int column) {
    return reinterpret_cast<uint8_t*>(i.address) + static_cast<int64_t>(i.stride) * row + column;
  };
  switch (i.op) {
    case Op::kLdtilecfg:
      return load_config(memory(0, 0));
    case Op::kSttilecfg:
      store_config(memory(0, 0));
      return Outcome::kDone;
    case Op::kTilerelease:
      clear();
      return Outcome::kDone;
    case Op::kTilezero:
      if (!usable(i.dst)) return Outcome::kUndefined;
      bytes[i.dst] = zeros();
      break;
    case Op::kTileloadd:
    case Op::kTileloaddt1:
      if (!usable(i.dst) || colsb[i.dst] % 4 || start_row >= rows[i.dst])
        return Outcome::kUndefined;
      for (int row = start_row; row < 16; ++row) {
        for (int column = 0; column < 64; ++column) {
          const bool inside = row < rows[i.dst] && column < colsb[i.dst];
          bytes[i.dst][static_cast<size_t>(64 * row + column)] = inside ? *memory(row, column) : 0;
        }
      }
      break;
    case Op::kTilestored:
      if (!usable(i.src1) || colsb[i.src1] % 4 || start_row >= rows[i.src1]) {
        return Outcome::kUndefined;
      }
      for (int row = start_row; row < rows[i.src1]; ++row) {
        for (int column = 0; column < colsb[i.src1]; ++column) {
          *memory(row, column) = bytes[i.src1][static_cast<size_t>(64 * row + column)];
        }
      }
      break;
    default:
      if (!dot_allowed(i.dst, i.src1, i.src2)) return Outcome::kUndefined;
      dot(i.op, i.dst, i.src1, i.src2);
  }
  start_row = 0;
  return Outcome::kDone;
}

}  // namespace quern::amx_emu
