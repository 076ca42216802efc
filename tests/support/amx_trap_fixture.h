#pragma once

#include <gtest/gtest.h>

#include "tests/support/amx_code.h"
#include "tests/support/amx_trap.h"

namespace quern::amx_emu {

/// Base of the tests that need AMX instructions to trap.
class TrapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (native_amx()) GTEST_SKIP() << "this CPU has AMX: its instructions do not trap";
    reset_thread();
    note_permission(false);
  }
  void TearDown() override {
    reset_thread();  // a test that failed half way
    note_permission(false);
  }
};

inline Options chaining() {
  Options o;
  o.on_fault = OnFault::kChain;
  return o;
}

}  // namespace quern::amx_emu
