#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "jit/isa.h"

namespace quern::jit {

/// A machine made of CPUID registers, XCR0 and a kernel's answers. Like a real one it is unkind to
/// callers that ask what they must not: a leaf above the highest answers with ones in every bit,
/// and XGETBV without OSXSAVE fails the test.
class FakeCpu final : public CpuSource {
 public:
  CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) const override {
    const CpuidRegs garbage{~0u, ~0u, ~0u, ~0u};
    if (leaf >= 0x80000000u ? leaf > max_extended : leaf > max_basic) {
      if (leaf != 0x80000000u) return garbage;
      return {max_extended, 0, 0, 0};
    }
    if (leaf == 7 && subleaf > max_leaf7) return garbage;
    CpuidRegs r;
    const auto it = leaves.find({leaf, subleaf});
    if (it != leaves.end()) r = it->second;
    if (leaf == 0) r.eax = max_basic;
    if (leaf == 0x80000000u) r.eax = max_extended;
    if (leaf == 7 && subleaf == 0) r.eax = max_leaf7;
    return r;
  }

  uint64_t xgetbv(uint32_t index) const override {
    EXPECT_EQ(index, 0u);
    EXPECT_TRUE((cpuid(1, 0).ecx >> 27) & 1) << "XGETBV without OSXSAVE faults on a real machine";
    return xcr0;
  }

  ArchPrctlResult arch_prctl(int op, unsigned long arg) const override {
    calls.push_back(op);
    if (op == kArchGetXcompPerm) return {get_error, get_error == 0 ? permitted : 0};
    EXPECT_EQ(op, kArchReqXcompPerm);
    EXPECT_EQ(arg, kXfeatureTileData);
    if (request_error == 0 && request_grants) permitted |= uint64_t{1} << 18;
    return {request_error, 0};
  }

  void set(uint32_t leaf, uint32_t subleaf, CpuidRegs r) { leaves[{leaf, subleaf}] = r; }
  CpuidRegs& at(uint32_t leaf, uint32_t subleaf = 0) { return leaves[{leaf, subleaf}]; }

  uint32_t max_basic = 0;
  uint32_t max_extended = 0;
  uint32_t max_leaf7 = 0;
  std::map<std::pair<uint32_t, uint32_t>, CpuidRegs> leaves;
  uint64_t xcr0 = 0;
  int get_error = 0;
  int request_error = 0;
  bool request_grants = true;
  mutable uint64_t permitted = 0;
  mutable std::vector<int> calls;  ///< arch_prctl operations, in order
};

}  // namespace quern::jit
