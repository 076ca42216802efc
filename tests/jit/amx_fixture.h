#pragma once

#include <array>
#include <iostream>
#include <optional>
#include <string>

#include "tests/jit/kernel_fixture.h"
#include "tests/support/amx_cpu.h"
#include "tests/support/amx_trap.h"
#include "xbyak/xbyak.h"

namespace quern::jit {

/// Runs AMX kernels: natively where the machine has AMX, else their very bytes on the emulator's
/// tiles. Every run says which. AVX-512 is the machine's own in either case.
class AmxKernelTest : public KernelTest {
 protected:
  static void SetUpTestSuite() {
    std::cout << "AMX: " << (amx_emu::native_amx() ? "native" : "emulated") << '\n';
  }
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped()) return;
    if (amx_emu::native_amx()) {
      IsaReport report;
      features_ = detect(system_cpu(), IsaLevel::kAmx, &report);
      if (features_.level < IsaLevel::kAmx) {
        GTEST_SKIP() << "not run: the CPU has AMX and the system refuses it: "
                     << report.stages.back().detail;
      }
      return;
    }
    scope_.emplace();
    ASSERT_TRUE(scope_->installed()) << scope_->reason();
    features_ = detect(cpu_, IsaLevel::kAmx, nullptr);
    ASSERT_EQ(features_.level, IsaLevel::kAmx);
  }
  bool emulated() const { return scope_.has_value(); }

 private:
  amx_emu::EmulatedCpu cpu_{system_cpu()};
  std::optional<amx_emu::Scope> scope_;
};

/// 64 bytes as LDTILECFG and STTILECFG have them.
using TileConfig = std::array<uint8_t, 64>;

/// The two instructions as functions.
class TileConfigCode final : public Xbyak::CodeGenerator {
 public:
  TileConfigCode() : Xbyak::CodeGenerator(4096, Xbyak::DontSetProtectRWE) {
    ldtilecfg(ptr[rdi]);
    ret();
    align(16);
    store_ = getSize();
    sttilecfg(ptr[rdi]);
    ret();
    setProtectModeRE();
  }
  void load(const TileConfig& config) const {
    reinterpret_cast<void (*)(const void*)>(reinterpret_cast<uintptr_t>(getCode()))(config.data());
  }
  TileConfig store() const {
    TileConfig config;
    config.fill(0xee);
    reinterpret_cast<void (*)(void*)>(reinterpret_cast<uintptr_t>(getCode() + store_))(
        config.data());
    return config;
  }

 private:
  size_t store_ = 0;
};

}  // namespace quern::jit
