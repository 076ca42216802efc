#include "tests/support/amx_cpu.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/jit/fake_cpu.h"
#include "tests/support/amx_trap.h"

namespace quern::amx_emu {
namespace {

using jit::CpuidRegs;
using jit::FakeCpu;

/// An AVX-512 machine without AMX whose highest leaf is 0Dh.
FakeCpu avx512_machine() {
  FakeCpu cpu;
  cpu.max_basic = 0xd;
  cpu.max_leaf7 = 0;
  cpu.xcr0 = 0xe7;
  cpu.at(1).ecx = 1u << 27;
  cpu.at(7) = {0, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, 1u << 11, 0};
  return cpu;
}

class AmxCpu : public ::testing::Test {
 protected:
  void SetUp() override { note_permission(false); }
  void TearDown() override { note_permission(false); }

  FakeCpu real_ = avx512_machine();
};

TEST_F(AmxCpu, AddsAmxToTheRealMachine) {
  const EmulatedCpu cpu(real_);
  EXPECT_EQ(cpu.cpuid(7, 0).edx, 1u << 22 | 1u << 24 | 1u << 25);
  EXPECT_EQ(cpu.cpuid(7, 0).ebx, real_.cpuid(7, 0).ebx);
  EXPECT_EQ(cpu.cpuid(7, 0).eax, 1u);
  EXPECT_EQ(cpu.cpuid(7, 1).eax, 1u << 21);
  EXPECT_EQ(cpu.cpuid(0, 0).eax, 0x1eu);
  EXPECT_EQ(cpu.cpuid(0x1d, 0).eax, 1u);
  const CpuidRegs palette = cpu.cpuid(0x1d, 1);
  EXPECT_EQ(palette.eax, 8192u | 1024u << 16);
  EXPECT_EQ(palette.ebx, 64u | 8u << 16);
  EXPECT_EQ(palette.ecx, 16u);
  EXPECT_EQ(cpu.cpuid(0x1e, 0).ebx, 16u | 64u << 8);
  EXPECT_EQ(cpu.xgetbv(0), 0x600e7u);
  EXPECT_EQ(cpu.cpuid(0x14, 0).eax, 0u) << "a leaf between the real highest and ours";
  CpuOptions no_fp16;
  no_fp16.fp16 = false;
  EXPECT_EQ(EmulatedCpu(real_, no_fp16).cpuid(7, 1).eax, 0u);
}

TEST_F(AmxCpu, DetectionFindsTheLevelAndAsksForPermission) {
  const EmulatedCpu cpu(real_);
  EXPECT_FALSE(permission_noted());
  IsaReport report;
  const jit::IsaFeatures f = jit::detect(cpu, IsaLevel::kAmx, &report);
  EXPECT_EQ(f.level, IsaLevel::kAmx);
  EXPECT_TRUE(f.amx_tile && f.amx_int8 && f.amx_bf16 && f.amx_fp16);
  EXPECT_TRUE(permission_noted());
  EXPECT_TRUE(real_.calls.empty()) << "the real kernel was asked";
}

TEST_F(AmxCpu, CapBelowAmxAsksForNothing) {
  const EmulatedCpu cpu(real_);
  EXPECT_EQ(jit::detect(cpu, IsaLevel::kAvx512, nullptr).level, IsaLevel::kAvx512);
  EXPECT_FALSE(permission_noted());
}

TEST_F(AmxCpu, WithoutAvx512ThereIsNoLevelAmx) {
  real_.at(7).ebx = 0;
  const EmulatedCpu cpu(real_);
  EXPECT_EQ(jit::detect(cpu, IsaLevel::kAmx, nullptr).level, IsaLevel::kNone);
}

TEST_F(AmxCpu, EveryRefusalOfTheKernelIsNamed) {
  const struct {
    int error;
    const char* name;
  } kErrors[] = {
      {EPERM, "EPERM"}, {EINVAL, "EINVAL"}, {ENOSYS, "ENOSYS"}, {EOPNOTSUPP, "EOPNOTSUPP"}};
  for (const auto& e : kErrors) {
    CpuOptions options;
    options.request_error = e.error;
    const EmulatedCpu refusing(real_, options);
    IsaReport report;
    EXPECT_EQ(jit::detect(refusing, IsaLevel::kAmx, &report).level, IsaLevel::kAvx512);
    ASSERT_EQ(report.stages.back().name, jit::kStageAmxPermission);
    EXPECT_NE(report.stages.back().detail.find(e.name), std::string::npos)
        << report.stages.back().detail;
    EXPECT_FALSE(permission_noted());
  }
  CpuOptions deaf;
  deaf.get_error = EINVAL;
  EXPECT_EQ(jit::detect(EmulatedCpu(real_, deaf), IsaLevel::kAmx, nullptr).level,
            IsaLevel::kAvx512);
}

TEST_F(AmxCpu, ThisMachineWithAmx) {
  const EmulatedCpu cpu(jit::system_cpu());
  const jit::IsaFeatures real = jit::detect(jit::system_cpu(), IsaLevel::kAvx512, nullptr);
  const jit::IsaFeatures f = jit::detect(cpu, IsaLevel::kAmx, nullptr);
  const bool avx512 = real.level == IsaLevel::kAvx512;
  EXPECT_EQ(f.level, avx512 ? IsaLevel::kAmx : IsaLevel::kNone);
  EXPECT_EQ(f.amx_tile, avx512);
  EXPECT_EQ(f.vbmi, real.vbmi);
  EXPECT_EQ(f.cache.l2_bytes, real.cache.l2_bytes);
}

}  // namespace
}  // namespace quern::amx_emu
