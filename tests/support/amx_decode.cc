#include "tests/support/amx_decode.h"

namespace quern::amx_emu {
namespace {

/// VEX.pp: the prefix that it stands for.
enum Prefix : uint8_t { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };

/// Gives one byte after the other; past the end zeros, and says so.
class Bytes {
 public:
  Bytes(const uint8_t* code, size_t size) : code_(code), size_(size) {}
  uint8_t next() {
    if (read_ == size_) {
      cut_off_ = true;
      return 0;
    }
    return code_[read_++];
  }
  bool cut_off() const { return cut_off_; }
  size_t read() const { return read_; }

 private:
  const uint8_t* code_;
  size_t size_;
  size_t read_ = 0;
  bool cut_off_ = false;
};

struct Vex {
  bool r, x, b, w, l;
  uint8_t vvvv;
  Prefix pp;
  uint8_t opcode;
  uint8_t mod, reg, rm;
};

Decoded fault(const char* rule) {
  Decoded d;
  d.kind = DecodeKind::kFault;
  d.rule = rule;
  return d;
}

/// Opcodes of map 0F38 that belong to AMX and nothing else, and the name of those not emulated.
struct OpcodeInfo {
  bool amx;
  const char* refused;
};
OpcodeInfo opcode_info(uint8_t opcode) {
  switch (opcode) {
    case 0x49:
    case 0x4b:
    case 0x5c:
    case 0x5e:
      return {true, nullptr};
    case 0x6c:
      return {true, "AMX-COMPLEX (tcmm*) is not emulated"};
    case 0x48:
      return {true, "AMX-TF32 (tmmultf32ps) is not emulated"};
    case 0x4a:
      return {true, "AMX-MOVRS (tileloaddrs) is not emulated"};
    default:
      return {false, nullptr};
  }
}

bool read_prefixes(Bytes& bytes, uint8_t& first, const char** rule) {
  for (int count = 0; count < 14; ++count) {
    switch (first) {
      case 0x64:
      case 0x65:
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
        if (!*rule) *rule = "segment prefixes are not emulated";
        break;
      case 0x67:
        if (!*rule) *rule = "the address-size prefix (32-bit registers) is not emulated";
        break;
      case 0x66:
      case 0xf0:
      case 0xf2:
      case 0xf3:
        *rule = "#UD: LOCK, 66, F2 or F3 before VEX";
        break;
      default:
        if ((first & 0xf0) != 0x40) return true;
        *rule = "#UD: REX before VEX";
    }
    first = bytes.next();
  }
  return false;
}

/// The displacement and, with a SIB byte, base and index.
MemoryOperand read_memory(const Vex& vex, Bytes& bytes) {
  MemoryOperand m;
  int base = vex.rm | (vex.b ? 8 : 0);
  bool disp32 = vex.mod == 2;
  if (vex.rm == 4) {
    const uint8_t sib = bytes.next();
    const int index = ((sib >> 3) & 7) | (vex.x ? 8 : 0);
    base = (sib & 7) | (vex.b ? 8 : 0);
    if (index != 4) m.index = static_cast<int8_t>(index);  // rsp is no index, r12 is one
    m.scale = static_cast<uint8_t>(1 << (sib >> 6));
    if ((sib & 7) == 5 && vex.mod == 0) {  // whatever VEX.B says: neither rbp nor r13
      base = kNoRegister;
      disp32 = true;
    }
  } else if (vex.rm == 5 && vex.mod == 0) {
    base = kRip;
    disp32 = true;
  }
  m.base = static_cast<int8_t>(base);
  if (disp32) {
    uint32_t disp = 0;
    for (int shift = 0; shift < 32; shift += 8) disp |= uint32_t{bytes.next()} << shift;
    m.disp = static_cast<int32_t>(disp);
  } else if (vex.mod == 1) {
    m.disp = static_cast<int8_t>(bytes.next());
  }
  return m;
}

uint64_t base_value(const MemoryOperand& m, const Gprs& gprs, size_t length) {
  if (m.base == kNoRegister) return 0;
  return m.base == kRip ? gprs.rip + length : gprs.r[m.base];
}

/// Fills in memory, addresses and length. `sibmem`: the index is the distance of rows instead of a
/// part of the address.
void resolve_memory(const Vex& vex, Bytes& bytes, const Gprs& gprs, bool sibmem, Instruction* out) {
  out->memory = read_memory(vex, bytes);
  const MemoryOperand& m = out->memory;
  const uint64_t index = m.index == kNoRegister ? 0 : gprs.r[m.index] * m.scale;
  out->address = base_value(m, gprs, bytes.read()) + static_cast<uint64_t>(int64_t{m.disp});
  if (sibmem) {
    out->stride = index;
  } else {
    out->address += index;
  }
}

Decoded instruction(const Instruction& made, const Bytes& bytes) {
  Decoded d;
  if (bytes.cut_off()) return d;
  d.kind = DecodeKind::kInstruction;
  d.instruction = made;
  d.instruction.length = static_cast<uint8_t>(bytes.read());
  return d;
}

constexpr char kBadVvvv[] = "#UD: VEX.vvvv is not 1111b";
constexpr char kBadTile[] = "#UD: a tile register above tmm7";
constexpr char kUnusedBits[] = "VEX.R or VEX.B where it extends no register is not emulated";
constexpr char kBadModrm[] = "#UD: no AMX instruction has this prefix and ModRM byte";

/// Opcode 49: configuration in memory, or tilerelease and tilezero.
Decoded decode_49(const Vex& vex, Bytes& bytes, const Gprs& gprs) {
  if (vex.vvvv != 0) return fault(kBadVvvv);
  Instruction made;
  if (vex.mod != 3) {
    if (vex.reg != 0 || vex.pp > k66) return fault(kBadModrm);
    if (vex.r) return fault(kUnusedBits);
    made.op = vex.pp == kNone ? Op::kLdtilecfg : Op::kSttilecfg;
    resolve_memory(vex, bytes, gprs, false, &made);
    return instruction(made, bytes);
  }
  if (vex.rm != 0) return fault(kBadModrm);
  if (vex.b) return fault(kUnusedBits);
  if (vex.pp == kNone && vex.reg == 0) {
    if (vex.r) return fault(kUnusedBits);
    made.op = Op::kTilerelease;
  } else if (vex.pp == kF2) {
    if (vex.r) return fault(kBadTile);
    made.op = Op::kTilezero;
    made.dst = vex.reg;
  } else {
    return fault(kBadModrm);
  }
  return instruction(made, bytes);
}

/// Opcode 4B: loads and stores.
Decoded decode_4b(const Vex& vex, Bytes& bytes, const Gprs& gprs) {
  if (vex.vvvv != 0) return fault(kBadVvvv);
  if (vex.mod == 3 || vex.pp == kNone) return fault(kBadModrm);
  if (vex.rm != 4) return fault("#UD: tile loads and stores need a SIB byte");
  if (vex.r) return fault(kBadTile);
  Instruction made;
  made.op = vex.pp == kF2 ? Op::kTileloadd : vex.pp == k66 ? Op::kTileloaddt1 : Op::kTilestored;
  (made.op == Op::kTilestored ? made.src1 : made.dst) = vex.reg;
  resolve_memory(vex, bytes, gprs, true, &made);
  return instruction(made, bytes);
}

/// Opcodes 5C and 5E: dot products.
Decoded decode_dot(const Vex& vex, Bytes& bytes) {
  if (vex.mod != 3) return fault(kBadModrm);
  Instruction made;
  if (vex.opcode == 0x5c) {
    if (vex.pp == kNone || vex.pp == k66) return fault(kBadModrm);
    made.op = vex.pp == kF3 ? Op::kTdpbf16ps : Op::kTdpfp16ps;
  } else {
    constexpr Op kByPrefix[] = {Op::kTdpbuud, Op::kTdpbusd, Op::kTdpbsud, Op::kTdpbssd};
    made.op = kByPrefix[vex.pp];
  }
  if (vex.r || vex.b || vex.vvvv > 7) return fault(kBadTile);
  made.dst = vex.reg;
  made.src1 = vex.rm;
  made.src2 = vex.vvvv;
  return instruction(made, bytes);
}

}  // namespace

const char* to_string(Op op) {
  constexpr const char* kNames[kOps] = {
      "ldtilecfg", "sttilecfg", "tilerelease", "tilezero", "tileloadd", "tileloaddt1", "tilestored",
      "tdpbssd",   "tdpbsud",   "tdpbusd",     "tdpbuud",  "tdpbf16ps", "tdpfp16ps"};
  return kNames[static_cast<int>(op)];
}

Decoded decode(const uint8_t* code, size_t size, const Gprs& gprs) {
  Bytes bytes(code, size);
  uint8_t first = bytes.next();
  const char* prefix_rule = nullptr;
  if (!read_prefixes(bytes, first, &prefix_rule) || first != 0xc4) return {};
  // Inverted in the encoding: R, X, B and vvvv.
  const uint8_t p1 = bytes.next();
  if ((p1 & 0x1f) != 2) return {};  // map 0F38
  const uint8_t p2 = bytes.next();
  Vex vex{};
  vex.opcode = bytes.next();
  const OpcodeInfo info = opcode_info(vex.opcode);
  if (bytes.cut_off() || !info.amx) return {};
  vex.r = (p1 & 0x80) == 0;
  vex.x = (p1 & 0x40) == 0;
  vex.b = (p1 & 0x20) == 0;
  vex.w = (p2 & 0x80) != 0;
  vex.vvvv = static_cast<uint8_t>((~p2 >> 3) & 15);
  vex.l = (p2 & 4) != 0;
  vex.pp = static_cast<Prefix>(p2 & 3);
  if (prefix_rule) return fault(prefix_rule);
  if (info.refused) return fault(info.refused);
  if (vex.w) return fault("#UD: VEX.W is 1");
  if (vex.l) return fault("#UD: VEX.L is 1");
  const uint8_t modrm = bytes.next();
  if (bytes.cut_off()) return {};
  vex.mod = modrm >> 6;
  vex.reg = (modrm >> 3) & 7;
  vex.rm = modrm & 7;
  switch (vex.opcode) {
    case 0x49:
      return decode_49(vex, bytes, gprs);
    case 0x4b:
      return decode_4b(vex, bytes, gprs);
    default:
      return decode_dot(vex, bytes);
  }
}

}  // namespace quern::amx_emu
