#pragma once

#include <xbyak/xbyak.h>

#include <cstdint>
#include <functional>

#include "tests/support/amx_decode.h"
#include "tests/support/amx_tiles.h"

namespace quern::amx_emu {

/// The 64 bytes of LDTILECFG.
struct Config {
  alignas(64) uint8_t bytes[kConfigBytes] = {1};

  Config& tile(int t, int rows, int colsb) {
    bytes[16 + 2 * t] = static_cast<uint8_t>(colsb);
    bytes[17 + 2 * t] = static_cast<uint8_t>(colsb >> 8);
    bytes[48 + t] = static_cast<uint8_t>(rows);
    return *this;
  }
  Config& all(int rows, int colsb) {
    for (int t = 0; t < kTiles; ++t) tile(t, rows, colsb);
    return *this;
  }
  Config& start_row(int row) {
    bytes[1] = static_cast<uint8_t>(row);
    return *this;
  }
};

/// Instructions for execute(), without their encoding.
inline Instruction make_move(Op op, int tile, const void* address, uint64_t stride) {
  Instruction i;
  i.op = op;
  (op == Op::kTilestored ? i.src1 : i.dst) = static_cast<uint8_t>(tile);
  i.address = reinterpret_cast<uint64_t>(address);
  i.stride = stride;
  return i;
}
inline Instruction make_config(Op op, const void* address) {
  Instruction i;
  i.op = op;
  i.address = reinterpret_cast<uint64_t>(address);
  return i;
}
inline Instruction make_zero(int tile) {
  Instruction i;
  i.op = Op::kTilezero;
  i.dst = static_cast<uint8_t>(tile);
  return i;
}
inline Instruction make_release() {
  return Instruction{};
}
inline Instruction make_dot(Op op, int c, int a, int b) {
  Instruction i;
  i.op = op;
  i.dst = static_cast<uint8_t>(c);
  i.src1 = static_cast<uint8_t>(a);
  i.src2 = static_cast<uint8_t>(b);
  return i;
}

/// Code that a test writes with Xbyak; run() calls it with up to four arguments (rdi, rsi, rdx,
/// rcx). The code ends with ret.
class Code : public Xbyak::CodeGenerator {
 public:
  explicit Code(const std::function<void(Code&)>& emit, size_t bytes = 65536)
      : Xbyak::CodeGenerator(bytes) {
    emit(*this);
    ready();
  }
  template <typename... Args>
  void run(Args... args) const {
    getCode<void (*)(Args...)>()(args...);
  }

  Xbyak::Reg64 arg(int i) const {
    const Xbyak::Reg64 order[] = {rdi, rsi, rdx, rcx};
    return order[i];
  }
};

/// Emits the operation whatever its form; `address` of moves has the rows' distance as index.
inline void emit(Xbyak::CodeGenerator& g, const Instruction& i, const Xbyak::Address& address) {
  const Xbyak::Tmm dst(i.dst), src1(i.src1), src2(i.src2);
  switch (i.op) {
    case Op::kLdtilecfg:
      return g.ldtilecfg(address);
    case Op::kSttilecfg:
      return g.sttilecfg(address);
    case Op::kTilerelease:
      return g.tilerelease();
    case Op::kTilezero:
      return g.tilezero(dst);
    case Op::kTileloadd:
      return g.tileloadd(dst, address);
    case Op::kTileloaddt1:
      return g.tileloaddt1(dst, address);
    case Op::kTilestored:
      return g.tilestored(address, src1);
    case Op::kTdpbssd:
      return g.tdpbssd(dst, src1, src2);
    case Op::kTdpbsud:
      return g.tdpbsud(dst, src1, src2);
    case Op::kTdpbusd:
      return g.tdpbusd(dst, src1, src2);
    case Op::kTdpbuud:
      return g.tdpbuud(dst, src1, src2);
    case Op::kTdpbf16ps:
      return g.tdpbf16ps(dst, src1, src2);
    case Op::kTdpfp16ps:
      return g.tdpfp16ps(dst, src1, src2);
  }
}

}  // namespace quern::amx_emu
