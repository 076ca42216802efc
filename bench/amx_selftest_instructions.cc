#include <cmath>
#include <cstddef>
#include <cstring>

#include "bench/amx_selftest.h"
#include "tests/support/amx_code.h"
#include "tests/support/amx_execute.h"
#include "tests/support/rng.h"

namespace quern::bench {
namespace {

using amx_emu::Code;
using amx_emu::Config;
using amx_emu::Op;
using amx_emu::Tile;
using amx_emu::TileState;

struct Operands {
  Config config;
  Tile c, a, b;
};

struct Dot {
  Op op;
  const char* name;
  int element_bytes;  ///< of A and B; 0: floating point
};
constexpr Dot kDots[] = {{Op::kTdpbssd, "tdpbssd", 1},
                         {Op::kTdpbsud, "tdpbsud", 1},
                         {Op::kTdpbusd, "tdpbusd", 1},
                         {Op::kTdpbuud, "tdpbuud", 1},
                         {Op::kTdpbf16ps, "tdpbf16ps", 0}};

/// Loads the three tiles, multiplies, stores C. Arguments: the operands, the output.
Code dot_code(Op op) {
  return Code(
      [op](Code& g) {
        g.mov(g.eax, 64);
        g.ldtilecfg(g.ptr[g.rdi + offsetof(Operands, config)]);
        g.tileloadd(g.tmm0, g.ptr[g.rdi + g.rax + offsetof(Operands, c)]);
        g.tileloadd(g.tmm1, g.ptr[g.rdi + g.rax + offsetof(Operands, a)]);
        g.tileloadd(g.tmm2, g.ptr[g.rdi + g.rax + offsetof(Operands, b)]);
        emit(g, amx_emu::make_dot(op, 0, 1, 2), g.ptr[g.rdi]);
        g.tilestored(g.ptr[g.rsi + g.rax], g.tmm0);
        g.tilerelease();
        g.ret();
      },
      4096);
}

/// The same by the emulator's arithmetic, without any AMX instruction.
Tile model(Op op, const Operands& o) {
  TileState s{};
  Tile out{};
  execute(s, amx_emu::make_config(Op::kLdtilecfg, o.config.bytes));
  execute(s, amx_emu::make_move(Op::kTileloadd, 0, &o.c, 64));
  execute(s, amx_emu::make_move(Op::kTileloadd, 1, &o.a, 64));
  execute(s, amx_emu::make_move(Op::kTileloadd, 2, &o.b, 64));
  execute(s, amx_emu::make_dot(op, 0, 1, 2));
  execute(s, amx_emu::make_move(Op::kTilestored, 0, &out, 64));
  return out;
}

void fill(Tile* tile, int element_bytes, bool is_c, test::Rng& rng) {
  if (element_bytes == 1) {
    for (auto& row : tile->row) {
      for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng.next());
    }
    return;
  }
  // bf16 (in C: f32) of about one: what sums of are rounded.
  for (auto& row : tile->row) {
    for (size_t i = 0; i < sizeof row; i += is_c ? 4 : 2) {
      const auto sign_and_fraction = static_cast<uint32_t>(rng.next());
      const uint32_t f32 = (sign_and_fraction & 0x807fffffu) | 0x3f000000u;
      if (is_c) {
        std::memcpy(row + i, &f32, 4);
      } else {
        const auto bf16 = static_cast<uint16_t>(f32 >> 16);
        std::memcpy(row + i, &bf16, 2);
      }
    }
  }
}

}  // namespace

void run_instruction_cases(const SelftestSink& sink) {
  for (const Dot& dot : kDots) {
    const Code code = dot_code(dot.op);
    test::Rng rng(static_cast<uint64_t>(dot.op));
    for (const int rows : {1, 7, 16}) {
      for (const int columns : {1, 5, 16}) {
        for (const int depth : {1, 3, 16}) {  // in groups of four bytes
          Operands o{};
          o.config.tile(0, rows, 4 * columns).tile(1, rows, 4 * depth).tile(2, depth, 4 * columns);
          fill(&o.c, dot.element_bytes, true, rng);
          fill(&o.a, dot.element_bytes, false, rng);
          fill(&o.b, dot.element_bytes, false, rng);
          Tile got{};
          code.run(&o, &got);
          const Tile want = model(dot.op, o);
          Checksum sum;
          sum.add(&got, sizeof got);
          const bool same = std::memcmp(&got, &want, sizeof got) == 0;
          const Verdict other = dot.element_bytes == 0 ? Verdict::kDiffers : Verdict::kWrong;
          sink({std::string(dot.name) + "/rows:" + std::to_string(rows) +
                    "/cols:" + std::to_string(columns) + "/depth:" + std::to_string(depth),
                sum.value(), same ? Verdict::kOk : other});
        }
      }
    }
  }
}

}  // namespace quern::bench
