#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/amx_code.h"
#include "tests/support/rng.h"

namespace quern::amx_emu {

/// Dwords that mean something in every type: bytes, two bf16, two fp16, one fp32; among them
/// denormals, infinities, NaNs, halves of the range, zeros of both signs.
inline uint32_t interesting_dword(test::Rng& rng) {
  static constexpr uint16_t kHalves[] = {
      0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x8080, 0x00ff, 0x0100, 0x03ff, 0x0400,
      0x3c00, 0xbc00, 0x3f80, 0xbf80, 0x3f81, 0x3380, 0x3381, 0x4b80, 0xcb80, 0x1a00, 0x9980,
      0x7bff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0x7f7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffff};
  const auto half = [&rng]() -> uint32_t {
    switch (rng.in(0, 9)) {
      case 0:
        return rng.pick(kHalves);
      case 1:
        return static_cast<uint16_t>(rng.next());
      default:  // of moderate size as bf16 and as fp16
        return static_cast<uint16_t>(0x3800 + rng.in(0, 0xfff) + (rng.one_in(2) ? 0x8000 : 0));
    }
  };
  const uint32_t low = half();
  return low | half() << 16;
}

/// Memory for random programs: the middle part is used, so that rows may lie on both sides.
struct Arena {
  static constexpr int64_t kBytes = 1 << 16;
  alignas(64) uint8_t bytes[kBytes];

  void fill(test::Rng& rng) {
    for (int64_t i = 0; i < kBytes; i += 4) {
      const uint32_t value = interesting_dword(rng);
      __builtin_memcpy(bytes + i, &value, 4);
    }
  }
};

/// One step of a program. Addresses are offsets, for arenas to add theirs.
struct Step {
  Instruction instruction;  ///< address: an offset
  Config config;            ///< of kLdtilecfg, which reads it from here instead
};

/// Instructions of which most make sense one after the other, and some fault.
class ProgramSource {
 public:
  explicit ProgramSource(uint64_t seed) : rng_(seed) {}

  test::Rng& rng() { return rng_; }

  Step next() {
    const int64_t what = first_ ? 0 : rng_.in(0, 99);
    first_ = false;
    Step s;
    if (what < 4) {
      s.instruction = make_config(Op::kLdtilecfg, nullptr);
      s.config = next_config();
    } else if (what < 6) {
      s.instruction = make_release();
      first_ = true;
    } else if (what < 9) {
      s.instruction = make_config(Op::kSttilecfg, nullptr);
    } else if (what < 17) {
      s.instruction = make_zero(tile());
    } else if (what < 45) {
      s.instruction =
          make_move(rng_.one_in(2) ? Op::kTileloadd : Op::kTileloaddt1, tile(), nullptr, stride());
    } else if (what < 58) {
      s.instruction = make_move(Op::kTilestored, tile(), nullptr, stride());
    } else {
      const auto op = static_cast<Op>(rng_.in(static_cast<int>(Op::kTdpbssd), kOps - 1));
      s.instruction = make_dot(op, tile(0), tile(1), tile(2));
    }
    // 16 rows at a distance of up to 1024 fit on both sides.
    s.instruction.address = static_cast<uint64_t>(rng_.in(16384, Arena::kBytes - 16384 - 64));
    return s;
  }

 private:
  /// Any tile, or mostly one of a kind: 0 as C, 1 as A, 2 as B.
  int tile(int kind = -1) {
    if (kind >= 0 && !rng_.one_in(20)) {
      for (int tries = 0; tries < 30; ++tries) {
        const int t = static_cast<int>(rng_.in(0, 7));
        if (kind_[t] == kind) return t;
      }
    }
    return static_cast<int>(rng_.in(0, 7));
  }

  /// A multiple of 8, so that every scale can express it.
  uint64_t stride() { return static_cast<uint64_t>(8 * rng_.in(-128, 128)); }

  Config next_config() {
    Config config;
    const auto size = [this] { return static_cast<int>(rng_.one_in(3) ? 16 : rng_.in(1, 16)); };
    const int m = size(), n = size(), k = size();
    for (int t = 0; t < kTiles; ++t) {
      kind_[t] = t < 3 ? t : static_cast<int>(rng_.in(0, 2));
      const int rows[] = {m, m, k}, columns[] = {n, k, n};
      config.tile(t, rows[kind_[t]], 4 * columns[kind_[t]]);
      if (rng_.one_in(16))
        config.tile(t, static_cast<int>(rng_.in(1, 16)), static_cast<int>(rng_.in(1, 64)));
      if (rng_.one_in(24)) config.tile(t, 0, 0);
    }
    if (rng_.one_in(8)) config.start_row(static_cast<int>(rng_.in(0, 17)));
    if (rng_.one_in(16)) config.bytes[rng_.in(0, 63)] = static_cast<uint8_t>(rng_.next());
    return config;
  }

  test::Rng rng_;
  int kind_[kTiles] = {};
  bool first_ = true;
};

}  // namespace quern::amx_emu
