#include "tests/support/amx_cpu.h"

#include <errno.h>

#include <algorithm>

#include "tests/support/amx_tiles.h"
#include "tests/support/amx_trap.h"

namespace quern::amx_emu {
namespace {

using jit::ArchPrctlResult;
using jit::CpuidRegs;

constexpr uint32_t kLeafTiles = 0x1d;
constexpr uint32_t kLeafTmul = 0x1e;
constexpr uint32_t kTileBytes = kMaxRows * kMaxRowBytes;
constexpr uint64_t kTileConfig = uint64_t{1} << 17;
constexpr uint64_t kTileData = uint64_t{1} << jit::kXfeatureTileData;

/// Palettes: subleaf 0 says how many there are, subleaf 1 describes palette 1.
CpuidRegs tiles_leaf(uint32_t subleaf) {
  if (subleaf == 0) return {1, 0, 0, 0};
  if (subleaf != 1) return {};
  return {kTiles * kTileBytes | kTileBytes << 16, kMaxRowBytes | uint32_t{kTiles} << 16, kMaxRows,
          0};
}

}  // namespace

CpuidRegs EmulatedCpu::real_leaf(uint32_t leaf, uint32_t subleaf) const {
  const uint32_t highest = real_.cpuid(leaf & 0x80000000u, 0).eax;
  if (leaf > highest) return {};
  if (leaf == 7 && subleaf > real_.cpuid(7, 0).eax) return {};
  return real_.cpuid(leaf, subleaf);
}

CpuidRegs EmulatedCpu::cpuid(uint32_t leaf, uint32_t subleaf) const {
  if (leaf == kLeafTiles) return tiles_leaf(subleaf);
  if (leaf == kLeafTmul) {  // rows of B and bytes of a row that the unit multiplies
    return subleaf == 0 ? CpuidRegs{0, kMaxRows | kMaxRowBytes << 8, 0, 0} : CpuidRegs{};
  }
  if (leaf >= 0x80000000u) return real_.cpuid(leaf, subleaf);
  CpuidRegs r = real_leaf(leaf, subleaf);
  if (leaf == 0) r.eax = std::max(r.eax, kLeafTmul);
  if (leaf == 7 && subleaf == 0) {
    r.eax = std::max(r.eax, 1u);
    r.edx |= 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  }
  if (leaf == 7 && subleaf == 1) {
    constexpr uint32_t kFp16 = 1u << 21;
    r.eax = options_.fp16 ? r.eax | kFp16 : r.eax & ~kFp16;
  }
  return r;
}

uint64_t EmulatedCpu::xgetbv(uint32_t index) const {
  const uint64_t value = real_.xgetbv(index);
  return index == 0 ? value | kTileConfig | kTileData : value;
}

ArchPrctlResult EmulatedCpu::arch_prctl(int op, unsigned long arg) const {
  if (op == jit::kArchGetXcompPerm) {
    if (options_.get_error != 0) return {options_.get_error, 0};
    const uint64_t others = real_.xgetbv(0) & ~kTileData;
    return {0, others | kTileConfig | (permission_noted() ? kTileData : 0)};
  }
  if (op != jit::kArchReqXcompPerm || arg != jit::kXfeatureTileData) {
    return real_.arch_prctl(op, arg);
  }
  if (options_.request_error != 0) return {options_.request_error, 0};
  note_permission(true);
  return {0, 0};
}

}  // namespace quern::amx_emu
