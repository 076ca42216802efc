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
  }
  void TearDown() override { reset_thread(); }  // a test that failed half way
};

inline Options with(OnFault on_fault) {
  Options o;
  o.on_fault = on_fault;
  return o;
}

}  // namespace quern::amx_emu
