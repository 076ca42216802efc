#pragma once

#include <cstdint>

#include "jit/isa.h"

namespace quern::test {

/// CPUID leaf 0, EBX.
inline constexpr uint32_t kGenuineIntel = 0x756e6547, kAuthenticAmd = 0x68747541;

/// The given machine, but that AVX512-BF16 is missing or somebody else made it. Intel's cores are
/// slow at bf16 dot products (IsaFeatures::slow_bf16_dots), AMD's are not.
class OtherMaker final : public jit::CpuSource {
 public:
  OtherMaker(const jit::CpuSource& base, bool bf16, uint32_t vendor)
      : base_(base), bf16_(bf16), vendor_(vendor) {}
  jit::CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) const override {
    jit::CpuidRegs regs = base_.cpuid(leaf, subleaf);
    if (leaf == 0) regs.ebx = vendor_;
    if (leaf == 7 && subleaf == 1 && !bf16_) regs.eax &= ~(1u << 5);
    return regs;
  }
  uint64_t xgetbv(uint32_t index) const override { return base_.xgetbv(index); }
  jit::ArchPrctlResult arch_prctl(int op, unsigned long arg) const override {
    return base_.arch_prctl(op, arg);
  }

 private:
  const jit::CpuSource& base_;
  bool bf16_;
  uint32_t vendor_;
};

/// The given machine, but that AVX512-VBMI is missing, as on Cascade Lake.
class WithoutVbmi final : public jit::CpuSource {
 public:
  explicit WithoutVbmi(const jit::CpuSource& base) : base_(base) {}
  jit::CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) const override {
    jit::CpuidRegs regs = base_.cpuid(leaf, subleaf);
    if (leaf == 7 && subleaf == 0) regs.ecx &= ~(1u << 1);
    return regs;
  }
  uint64_t xgetbv(uint32_t index) const override { return base_.xgetbv(index); }
  jit::ArchPrctlResult arch_prctl(int op, unsigned long arg) const override {
    return base_.arch_prctl(op, arg);
  }

 private:
  const jit::CpuSource& base_;
};

}  // namespace quern::test
