// quern-smoke --emulate-amx: whole models through AMX kernels, on any machine that has AVX-512.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/model_smoke/smoke_binary.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::Outcome;
using test::smoke;

class EmulatedAmx : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!test::jit_runs()) GTEST_SKIP() << "not run: AMX kernels need AVX-512 too";
    const std::string root = quern::test::source_dir();
    path_ = root + "/model_smoke/checkpoints/" + GetParam();
    if (!std::filesystem::exists(path_)) path_ = root + "/../shared/goldens/public/" + GetParam();
    if (!std::filesystem::exists(path_)) path_ = root + "/../shared/checkpoints/" + GetParam();
    if (!std::filesystem::exists(path_)) {
      GTEST_SKIP() << "not run: " << path_ << " is not there: ../shared is no part of the tree";
    }
  }
  std::string path_;
};

TEST_P(EmulatedAmx, HoldsTheGoldenValues) {
  const Outcome o = smoke("verify -m " + path_ + " --isa amx --emulate-amx --threads 2");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_NE(o.out.find("PASS"), std::string::npos) << o.out;
  const bool says_how = o.err.find("AMX: emulated") != std::string::npos ||
                        o.err.find("AMX: native") != std::string::npos;
  EXPECT_TRUE(says_how) << o.err;
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedAmx,
                         testing::Values("qwen35_docs", "qwen35_docs.w8a8_int8", "qwen35_dense",
                                         "qwen35_dense.w8a8_int8", "qwen35_dense.ct_int8",
                                         "qwen35_docs.nvfp4_all", "qwen35_docs.fp8_block"),
                         [](const testing::TestParamInfo<const char*>& model) {
                           std::string name = model.param;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

TEST(EmulatedAmxSwitch, PlansAreOfTheAmxFamily) {
  if (!test::jit_runs()) GTEST_SKIP() << "not run: AMX kernels need AVX-512 too";
  const Outcome o = smoke("inspect --emulate-amx -m " + quern::test::source_dir() +
                          "/model_smoke/checkpoints/qwen35_docs");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("bf16_gemm.amx."), std::string::npos) << o.out;
}

}  // namespace
}  // namespace quern::smoke
