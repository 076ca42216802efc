#include "jit/regs.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace quern::jit {
namespace {

std::string what_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::logic_error& e) {
    return e.what();
  }
  return "";
}

TEST(RegPool, SecondTakerOfALiveRegisterIsStoppedWithBothNames) {
  VecPool pool("zmm", {0, 1});
  pool.take_index(1, "scale");
  const std::string what = what_of([&] { pool.take_index(1, "bias"); });
  EXPECT_NE(what.find("scale"), std::string::npos) << what;
  EXPECT_NE(what.find("bias"), std::string::npos) << what;
}

TEST(RegPool, RunningOutNamesTheTakerAndTheHolders) {
  VecPool pool("zmm", {0, 1});
  pool.take("acc.0");
  pool.take("acc.1");
  const std::string what = what_of([&] { pool.take("b.0"); });
  EXPECT_NE(what.find("b.0"), std::string::npos) << what;
  EXPECT_NE(what.find("zmm1=acc.1"), std::string::npos) << what;
}

TEST(RegPool, GivingBackTwiceIsAnError) {
  GpPool pool("gp", {0, 1});
  const Xbyak::Reg64 reg = pool.take("count");
  pool.give_back(reg);
  EXPECT_THROW(pool.give_back(reg), std::logic_error);
}

TEST(RegPool, ScopeGivesBack) {
  MaskPool pool("k", {1});
  { TakenMask held(pool, "tail"); }
  EXPECT_EQ(pool.take("columns").getIdx(), 1);
  EXPECT_EQ(pool.map(), "k1=columns");
}

}  // namespace
}  // namespace quern::jit
