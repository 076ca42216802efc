#pragma once

#include <cstdint>
#include <cstring>

#include "tests/jit/fake_cpu.h"

namespace quern::test {

/// Machines for tests of what ops does with a level. Bit numbers are from the Intel manual (volume
/// 2A, CPUID); tests/jit/isa_test.cc has the many odd ones.
inline void set_brand(jit::FakeCpu* cpu, const char (&brand)[16]) {
  uint32_t words[4];
  std::memcpy(words, brand, sizeof words);
  cpu->set(0x80000002u, 0, {words[0], words[1], words[2], words[3]});
}

/// Everything up to AVX-512 VNNI, BF16 and VBMI; no AMX.
inline jit::FakeCpu avx512_machine() {
  constexpr uint32_t kOsxsave = 1u << 27;
  constexpr uint32_t kEbx = 1u << 8 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // BMI2 F DQ BW VL
  constexpr uint32_t kEcx = 1u << 1 | 1u << 6 | 1u << 11;                         // VBMI VBMI2 VNNI
  jit::FakeCpu cpu;
  cpu.max_basic = 0x20;
  cpu.max_extended = 0x80000008u;
  cpu.max_leaf7 = 1;
  set_brand(&cpu, "Mock AVX-512\0\0\0");
  cpu.set(1, 0, {0, 0, kOsxsave | 1u << 26, 0});
  cpu.set(7, 0, {0, kEbx, kEcx, 0});
  cpu.set(7, 1, {1u << 5, 0, 0, 0});  // AVX512-BF16
  cpu.xcr0 = 0xe7;                    // x87, SSE, AVX, opmask, zmm
  return cpu;
}

/// The same with AMX, whose permission the kernel grants.
inline jit::FakeCpu amx_machine() {
  jit::FakeCpu cpu = avx512_machine();
  set_brand(&cpu, "Mock AMX\0\0\0\0\0\0\0");
  cpu.at(7).edx = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  cpu.set(0x1d, 0, {1, 0, 0, 0});
  cpu.set(0x1d, 1, {1024u << 16 | 8192, 8u << 16 | 64, 16, 0});
  cpu.xcr0 = 0x602e7;  // and tile configuration and data
  return cpu;
}

/// No AVX-512 at all.
inline jit::FakeCpu old_machine() {
  jit::FakeCpu cpu = avx512_machine();
  set_brand(&cpu, "Mock old\0\0\0\0\0\0\0");
  cpu.at(7) = {};
  cpu.at(7, 1) = {};
  cpu.xcr0 = 0x7;
  return cpu;
}

}  // namespace quern::test
