// Which kernels a plan of int4_gemm has for how many rows: what reads packed panels and what
// decoded ones, what stands in for tiles, and how many lines they fetch ahead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>

#include "ops/context_impl.h"
#include "quern/int4_gemm.h"
#include "tests/support/isa_list.h"

namespace quern::test {
namespace {

class Int4PlanTest : public IsaTest {
 protected:
  std::string plan(Int4Activations activations, int64_t group,
                   Int4Zeros zeros = Int4Zeros::kSymmetric) const {
    Int4GemmDesc desc;
    desc.n = 512;
    desc.k = 1024;
    desc.group = group;
    desc.activations = activations;
    desc.zeros = zeros;
    const auto op = Int4Gemm::create(ctx(), desc);
    EXPECT_TRUE(op.ok()) << op.status().message();
    return op.ok() ? op->explain() : "";
  }
  bool amx() const { return GetParam().level == IsaLevel::kAmx; }
};

/// What explain() has for m rows: lines are "  m 5..16: mr 16, ...", the last one open.
std::string line_of(const std::string& plan, int64_t m) {
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    int64_t first = 0, last = INT64_MAX;
    char colon = 0;
    std::istringstream in(line);
    std::string word;
    if (!(in >> word >> first) || word != "m") continue;
    in.ignore(2);
    if (in.peek() != ':') in >> last;
    if (in >> colon && colon == ':' && first <= m && m <= last) return line;
  }
  return "";
}

/// Rows up to which another family than the first one is chosen.
int64_t few_rows(const std::string& plan) {
  const std::string before = "avx512: chosen for m 1..";
  const size_t at = plan.find(before);
  return at == std::string::npos ? 0 : std::stoll(plan.substr(at + before.size()));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_P(Int4PlanTest, RowsDecideBetweenPackedAndDecodedWeights) {
  const std::string w4a16 = plan(Int4Activations::kBF16, 128);
  const std::string w4a8 = plan(Int4Activations::kDynamicS8, 128);
  const std::string tiles16 = "grouped_gemm.amx.bf16bf16bf16", tiles8 = "grouped_gemm.amx.s8s8bf16";
  const std::string packed16 = "grouped_gemm.avx512.bf16u4bf16",
                    packed8 = "grouped_gemm.avx512.s8u4bf16";
  const std::string decoded16 = "grouped_gemm.avx512.bf16bf16bf16";
  const std::string decoded8 = "grouped_gemm.avx512.s8u8bf16";
  // At level amx measurements decide; they have to leave rows for both.
  const int64_t few16 = amx() ? few_rows(w4a16) : 16, few8 = amx() ? few_rows(w4a8) : 64;
  ASSERT_GE(few16, 1) << w4a16;
  ASSERT_GE(few8, 1) << w4a8;
  ASSERT_LE(std::max(few16, few8), 64) << w4a8;
  for (int64_t m = 1; m <= 300; ++m) {
    const std::string want16 = m <= few16 ? packed16 : amx() ? tiles16 : decoded16;
    const std::string want8 = m <= few8 ? packed8 : amx() ? tiles8 : decoded8;
    ASSERT_TRUE(has(line_of(w4a16, m), want16)) << m << '\n' << w4a16;
    ASSERT_TRUE(has(line_of(w4a8, m), want8)) << m << '\n' << w4a8;
  }
  EXPECT_TRUE(has(w4a16, "decoded by grouped_decode.avx512.u4bf16.z8 ") ||
              has(w4a16, "decoded by grouped_decode.avx512.u4bf16.z8.poison "))
      << w4a16;
}

// A stand-in for tiles has their bits only where a tile ends with a line, and is one of 1, 2 or 4.
// The first line of explain() is the problem that a tuning source is asked about.
TEST_P(Int4PlanTest, AllOfKHasOneNameHoweverSaid) {
  const auto name = [&](int64_t group) {
    const std::string text = plan(Int4Activations::kBF16, group);
    return text.substr(0, text.find('\n'));
  };
  const std::string all = name(-1);
  EXPECT_EQ(all.rfind("int4_gemm/n:512/k:1024/", 0), 0u) << all;
  for (const int64_t group : {int64_t{1024}, int64_t{1025}, INT64_MAX}) {
    EXPECT_EQ(name(group), all);
  }
  EXPECT_TRUE(has(name(1023), "/g:1023/"));
}

TEST_P(Int4PlanTest, FewRowsOfBf16StandInWhereTilesAreWholeLines) {
  if (!amx()) GTEST_SKIP() << "not run: no tiles to stand in for";
  struct Group {
    int64_t columns;
    const char* tile;  ///< null: none
  };
  for (const Group& g : {Group{16, "tl1"}, Group{32, "tl2"}, Group{64, "tl4"}, Group{128, "tl4"},
                         Group{1024, "tl4"}, Group{8, nullptr}, Group{24, nullptr},
                         Group{48, nullptr}, Group{96, nullptr}, Group{40, nullptr}}) {
    const std::string text = plan(Int4Activations::kBF16, g.columns);
    const std::string line = line_of(text, 1);
    if (g.tile == nullptr) {
      EXPECT_TRUE(has(line, "grouped_gemm.amx.")) << g.columns << '\n' << text;
    } else {
      EXPECT_TRUE(has(line, std::string(".fma.") + g.tile)) << g.columns << '\n' << text;
    }
    EXPECT_TRUE(has(line_of(text, 17), "grouped_gemm.amx.")) << g.columns << '\n' << text;
  }
}

// Zero points are subtracted from what tiles multiply, unless they are floats; the quads of
// vpdpbusd are codes as they are.
TEST_P(Int4PlanTest, WhatIsDecodedForWhichZeroPoints) {
  const auto text = [this](Int4Zeros zeros) {
    return plan(Int4Activations::kDynamicS8, 128, zeros);
  };
  const std::string decode = "grouped_decode.avx512.u4";
  EXPECT_TRUE(has(text(Int4Zeros::kSymmetric), decode + (amx() ? "s8.z8" : "u8")));
  EXPECT_TRUE(has(text(Int4Zeros::kInteger), decode + (amx() ? "s8.zu8" : "u8")));
  EXPECT_TRUE(has(text(Int4Zeros::kF32), decode + "u8"));
}

// A block of rows alone with packed panels fetches every line it reads; blocks that share decoded
// ones fetch of the packed lines behind them as few as cover the next chunk.
TEST_P(Int4PlanTest, LinesFetchedAhead) {
  const std::string w4a16 = plan(Int4Activations::kBF16, 128);
  const std::string w4a8 = plan(Int4Activations::kDynamicS8, 128);
  // Few operations a line: fetched ahead but on vectors of half width (blocking_test.cc).
  const bool half_width = ctx().impl().features.half_width_vectors && !amx();
  EXPECT_TRUE(has(line_of(w4a16, 1), half_width ? ".nr4.pf0." : ".nr4.pf16.")) << w4a16;
  EXPECT_TRUE(has(line_of(w4a8, 6), ".nr4.pf16.")) << w4a8;
  EXPECT_TRUE(has(line_of(w4a8, 7), ".nr3.pf12.")) << w4a8;
  if (amx()) {
    EXPECT_TRUE(has(line_of(w4a16, 16), ".mr16.nr2.pf2.")) << w4a16;
    EXPECT_TRUE(has(line_of(w4a16, 32), ".nr2.pf2.")) << w4a16;  // a turn is 1 packed line a panel
    EXPECT_TRUE(has(line_of(w4a16, 64), ".nr2.pf1.")) << w4a16;
    EXPECT_TRUE(has(line_of(w4a8, 64), ".nr2.pf2.")) << w4a8;  // and here 2
    EXPECT_TRUE(has(line_of(w4a8, 128), ".nr2.pf1.")) << w4a8;
  } else {
    EXPECT_TRUE(has(line_of(w4a16, 200), ".pf1.")) << w4a16;
    EXPECT_TRUE(has(line_of(w4a8, 200), ".pf1.")) << w4a8;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Int4PlanTest, ::testing::ValuesIn(isas_to_test()), isa_name);

}  // namespace
}  // namespace quern::test
