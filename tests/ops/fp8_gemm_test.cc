// fp8_gemm: what only weights of 8-bit floats with a grid of scales have. Everything that is said
// of every GEMM is said of fp8_gemm in gemm_*_test.cc.
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "quern/fp8_gemm.h"
#include "tests/ops/fp8_operands.h"
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

using Fp8Test = GemmTest;

auto every_fp8() {
  return ::testing::Combine(::testing::ValuesIn(isas_to_test()), ::testing::Values(kFp8Kind));
}

constexpr DType kFp8Types[] = {DType::kE4M3, DType::kE5M2};

GemmCase fp8_case(int64_t m, int64_t n, int64_t k, int64_t block_n, int64_t block_k) {
  GemmCase c = make_case(kFp8Kind, m, n, k);
  c.problem.block_n = block_n;
  c.problem.block_k = block_k;
  c.problem.c = DType::kF32;
  return c;
}

GemmOp packed_op(const Context& ctx, const GemmCase& c, const GemmData& data) {
  Result<GemmOp> op = GemmOp::create(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  if (!op.ok()) return {};
  const Status packed = op->pack(data);
  EXPECT_TRUE(packed.ok()) << packed.message();
  return std::move(op).value();
}

std::vector<std::byte> bytes_of(const PackedWeights& w) {
  return std::vector<std::byte>(w.data(), w.data() + w.bytes());
}

// Groups of 10 of 23 take 16 depths each (a whole number of lines of 8): where each code lies,
// where zeros do, and the scales behind.
TEST_P(Fp8Test, PackedBytesAreThoseOfTheLayout) {
  for (const DType type : kFp8Types) {
    for (const bool gate_up : {false, true}) {
      GemmCase c = fp8_case(1, 19, 23, 5, 10);
      c.problem.weights = type;
      c.w_pad = 3;
      if (gate_up) c.problem.epilogue.activation = Activation::kSiluMul;
      GemmData data(c);
      const GemmOp op = packed_op(ctx(), c, data);
      const PackedWeights& w = op.packed();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(w.data()) % 64, 0u);
      ASSERT_EQ(w.panel_bytes(), 3 * 16 * 16);
      EXPECT_EQ(w.group(), 10);
      EXPECT_EQ(w.groups(), 3);
      const int64_t parts = c.parts(), panels = 2 * parts;
      ASSERT_EQ(w.bytes(), static_cast<size_t>(panels * (w.panel_bytes() + 3 * 64)));
      const auto* scales = reinterpret_cast<const float*>(w.data() + panels * w.panel_bytes());
      for (int64_t p = 0; p < panels; ++p) {
        const auto part = static_cast<size_t>(p % parts);
        for (int64_t column = 0; column < 16; ++column) {
          const int64_t j = p / parts * 16 + column;
          for (int64_t d = 0; d < 48; ++d) {
            const int64_t k = d / 16 * 10 + d % 16;
            const bool inside = j < 19 && d % 16 < 10 && k < 23;
            const int64_t byte = p * w.panel_bytes() + d / 4 * 64 + column / 4 * 16 +
                                 d % 4 / 2 * 8 + column % 4 * 2 + d % 2;
            EXPECT_EQ(std::to_integer<uint32_t>(w.data()[byte]),
                      inside ? data.w[part].bits(j, k) : 0u)
                << "panel " << p << " column " << column << " depth " << d;
          }
          for (int64_t g = 0; g < 3; ++g) {
            const float want = j < 19 ? static_cast<float>(data.w_scale[part].get(j / 5, g)) : 0.0f;
            EXPECT_EQ(scales[(p * 3 + g) * 16 + column], want) << j << ' ' << g;
          }
        }
      }
    }
  }
}

// Each row of A is 1 at one depth: C is the decoded weights. NaNs and infinities would fill their
// columns; gemm_containment_test.cc has them.
TEST_P(Fp8Test, EveryCodeInEveryPlaceDecodesExactly) {
  constexpr int64_t kDepth = 256, kColumns = 32;
  for (const DType type : kFp8Types) {
    GemmCase c = fp8_case(kDepth, kColumns, kDepth, 0, 0);
    c.problem.weights = type;
    GemmData data(c);
    data.a.set_all(0);
    data.w_scale[0].set_all(1);
    for (int64_t k = 0; k < kDepth; ++k) data.a.set(k, k, 1);
    for (int turn = 0; turn < 256; turn += 16) {
      for (int64_t n = 0; n < kColumns; ++n) {
        for (int64_t k = 0; k < kDepth; ++k) {
          auto code = static_cast<uint8_t>(k + 5 * n + 17 * turn);
          if (!std::isfinite(fp8_value(type, code))) code = 0;
          data.w[0].set_bits(n, k, code);
        }
      }
      const GemmOp op = packed_op(ctx(), c, data);
      // All rows at once read decoded weights, some at a time packed ones.
      for (const int64_t rows : {kDepth, int64_t{16}, int64_t{2}}) {
        if (rows == 2 && turn % 128 != 0) continue;
        for (int64_t first = 0; first < kDepth; first += rows) {
          ASSERT_TRUE(op.run(row_block(args_of(c, data), first, rows)).ok());
        }
        for (int64_t k = 0; k < kDepth; ++k) {
          for (int64_t n = 0; n < kColumns; ++n) {
            const auto code = static_cast<uint8_t>(data.w[0].bits(n, k));
            ASSERT_EQ(data.c.get(k, n), fp8_value(type, code))
                << to_string(type) << " code " << int{code} << " at " << n << ", " << k << ", "
                << rows << " rows at once";
          }
        }
      }
    }
  }
}

// A column for each code that is no number, at a depth of its own; A is 1 everywhere. Packed codes
// and decoded ones.
TEST_P(Fp8Test, InfinitiesAndNansAreThemselves) {
  for (const DType type : kFp8Types) {
    std::vector<uint8_t> codes;
    for (int code = 0; code < 256; ++code) {
      if (!std::isfinite(fp8_value(type, static_cast<uint8_t>(code)))) {
        codes.push_back(static_cast<uint8_t>(code));
      }
    }
    ASSERT_EQ(codes.size(), type == DType::kE4M3 ? 2u : 8u);
    const auto columns = static_cast<int64_t>(codes.size());
    for (const int64_t rows : {1, 2, 40, 256}) {
      GemmCase c = fp8_case(rows, columns, 64, 0, 0);
      c.problem.weights = type;
      GemmData data(c);
      data.a.set_all(1);
      data.w_scale[0].set_all(1);
      for (int64_t n = 0; n < columns; ++n) {
        for (int64_t k = 0; k < 64; ++k) data.w[0].set_bits(n, k, k == 7 * n ? codes[n] : 0u);
      }
      const GemmOp op = packed_op(ctx(), c, data);
      ASSERT_TRUE(op.run(args_of(c, data)).ok());
      for (int64_t n = 0; n < columns; ++n) {
        const double want = fp8_value(type, codes[n]), got = data.c.get(rows - 1, n);
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
            << to_string(type) << " code " << int{codes[n]} << ", " << rows << " rows: " << got;
      }
    }
  }
}

// Blocks of 128 x 128, of one column or of all, of odd sizes, and ends of a grid in the middle of a
// panel, of a tile and of a line, for every number of rows that has a kernel of its own.
TEST_P(Fp8Test, EveryGridAndNumberOfRows) {
  const int64_t shapes[][2] = {{40, 200}, {17, 129}, {33, 64}, {16, 257}, {5, 37}};
  const int64_t blocks[][2] = {{128, 128}, {1, 0}, {0, 0}, {16, 32}, {3, 24}, {7, 100}, {1, 1}};
  uint64_t variant = 100;
  for (const auto& [n, k] : shapes) {
    for (const auto& [block_n, block_k] : blocks) {
      for (int64_t m = 1; m <= 20; ++m) {
        GemmCase c = make_case(kind(), m, n, k);
        vary(c, ++variant);
        c.problem.block_n = block_n;
        c.problem.block_k = block_k;
        c.fill = Fill::kExact;
        c.problem.epilogue.activation = Activation::kNone;
        ASSERT_TRUE(check_case(ctx(), c));
      }
    }
  }
}

TEST_P(Fp8Test, GateAndUpHaveGridsOfTheirOwn) {
  for (const auto& [block_n, block_k] :
       {std::pair<int64_t, int64_t>{128, 128}, {1, 0}, {0, 0}, {5, 24}}) {
    for (const int64_t m : {1, 2, 7, 17, 40}) {
      GemmCase c = fp8_case(m, 21, 130, block_n, block_k);
      c.problem.epilogue.activation = Activation::kSiluMul;
      c.problem.epilogue.bias = true;
      EXPECT_TRUE(check_case(ctx(), c));
    }
  }
}

// Scales are converted to f32, exactly: the type that a checkpoint stores them in does not matter.
TEST_P(Fp8Test, ScalesOfEveryTypeArePackedAlike) {
  std::vector<std::vector<std::byte>> packed;
  for (const DType scale : {DType::kF32, DType::kBF16, DType::kF16}) {
    GemmCase c = fp8_case(1, 40, 100, 16, 24);
    c.scale = scale;
    GemmData data(c);
    Rng rng(7);
    fill_fp8(data.w[0], rng, Fill::kRandom, 8);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 5; ++j) {
        data.w_scale[0].set(i, j, std::ldexp(static_cast<double>(1 + i + 3 * j), -10));
      }
    }
    packed.push_back(bytes_of(packed_op(ctx(), c, data).packed()));
  }
  EXPECT_EQ(packed[1], packed[0]);
  EXPECT_EQ(packed[2], packed[0]);
}

// One block of scale 1 is a product of bf16: the bits of bf16_gemm on the decoded weights, but for
// the sign of zeros.
TEST_P(Fp8Test, OneBlockOfScaleOneHasTheBitsOfBf16) {
  for (const DType type : kFp8Types) {
    for (const int64_t m : {1, 3, 16, 33}) {
      GemmCase c = fp8_case(m, 50, 320, 0, 0);
      c.problem.weights = type;
      GemmData data(c);
      data.w_scale[0].set_all(1);
      GemmCase plain = make_case(kGemmKinds[0], m, 50, 320);
      plain.problem.c = DType::kF32;
      GemmData decoded(plain);
      for (int64_t i = 0; i < 50; ++i) {
        for (int64_t j = 0; j < 320; ++j) {
          decoded.w[0].set(i, j, data.w[0].get(i, j));
        }
      }
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < 320; ++j) decoded.a.set_bits(i, j, data.a.bits(i, j));
      }
      const std::vector<uint32_t> got = output_bits(packed_op(ctx(), c, data), c, data);
      const std::vector<uint32_t> want =
          output_bits(packed_op(ctx(), plain, decoded), plain, decoded);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        if ((want[i] & 0x7fffffffu) == 0) continue;
        ASSERT_EQ(got[i], want[i]) << to_string(type) << ' ' << m << ' ' << i;
      }
    }
  }
}

// ---- what a plan uses -------------------------------------------------------------------------

/// What explain() has for m rows: "  m 5..16: mr 16, ...", the last one open.
std::string line_of(const std::string& plan, int64_t m) {
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    int64_t first = 0, last = std::numeric_limits<int64_t>::max();
    std::istringstream in(line);
    std::string word;
    if (!(in >> word >> first) || word != "m") continue;
    in.ignore(2);
    if (in.peek() != ':') in >> last;
    if (first <= m && m <= last) return line;
  }
  return "";
}

TEST_P(Fp8Test, RowsDecideBetweenPackedAndDecodedWeights) {
  const bool amx = isa().level == IsaLevel::kAmx;
  for (const DType type : kFp8Types) {
    GemmCase c = fp8_case(1, 512, 1024, 128, 128);
    c.problem.weights = type;
    c.problem.c = DType::kBF16;
    const Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    const std::string plan = op->explain();
    const std::string name = to_string(type);
    const std::string packed = "grouped_gemm.avx512.bf16" + name + "bf16";
    const std::string decoded =
        amx ? "grouped_gemm.amx.bf16bf16bf16" : "grouped_gemm.avx512.bf16bf16bf16";
    EXPECT_NE(line_of(plan, 1).find(packed), std::string::npos) << plan;
    EXPECT_NE(line_of(plan, 100).find(decoded), std::string::npos) << plan;
    EXPECT_NE(plan.find("decoded by grouped_decode.avx512." + name + "bf16"), std::string::npos)
        << plan;
    // Tiles of 32 columns are 8 lines.
    EXPECT_EQ(line_of(plan, 1).find(".tl8.") != std::string::npos, amx) << plan;
  }
}

// A stand-in for tiles has their bits only where a tile is 1, 2, 4 or 8 whole lines.
TEST_P(Fp8Test, FewRowsStandInWhereTilesAreWholeLines) {
  if (isa().level != IsaLevel::kAmx) GTEST_SKIP() << "not run: no tiles to stand in for";
  struct Block {
    int64_t columns;
    const char* tile;  ///< null: none
  };
  for (const Block& b :
       {Block{8, ".tl1."}, Block{16, ".tl2."}, Block{24, nullptr}, Block{32, ".tl4."},
        Block{40, nullptr}, Block{48, nullptr}, Block{64, ".tl8."}, Block{100, nullptr},
        Block{128, ".tl8."}, Block{0, ".tl8."}}) {
    const GemmCase c = fp8_case(1, 512, 1024, 128, b.columns);
    const Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    const std::string line = line_of(op->explain(), 1);
    if (b.tile == nullptr) {
      EXPECT_NE(line.find("grouped_gemm.amx."), std::string::npos) << b.columns << line;
    } else {
      EXPECT_NE(line.find(b.tile), std::string::npos) << b.columns << line;
    }
  }
}

/// The first line of explain(), which is the problem that a tuning source is asked about.
std::string plan_name(const Context& ctx, int64_t block_n, int64_t block_k) {
  const Result<GemmOp> op = GemmOp::create(ctx, fp8_case(1, 20, 30, block_n, block_k));
  if (!op.ok()) return op.status().message();
  const std::string plan = op->explain();
  return plan.substr(0, plan.find('\n'));
}

TEST_P(Fp8Test, AllColumnsHaveOneNameHoweverSaid) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::string all = plan_name(ctx(), 0, 0);  // -1 in the desc
  EXPECT_EQ(all.rfind("fp8_gemm/n:20/k:30/", 0), 0u) << all;
  for (const int64_t more : {int64_t{0}, int64_t{1}, kMost - 30}) {
    EXPECT_EQ(plan_name(ctx(), 20 + more, 0), all);
    EXPECT_EQ(plan_name(ctx(), 0, 30 + more), all);
  }
  EXPECT_NE(plan_name(ctx(), 19, 0).find("/bn:19/"), std::string::npos);
  EXPECT_NE(plan_name(ctx(), 0, 29).find("/bk:29/"), std::string::npos);
}

// ---- errors -----------------------------------------------------------------------------------

TEST_P(Fp8Test, DescsThatAreNone) {
  const auto message = [&](const auto& breakage) {
    Fp8GemmDesc desc;
    desc.n = 20;
    desc.k = 30;
    breakage(&desc);
    const auto op = Fp8Gemm::create(ctx(), desc);
    EXPECT_FALSE(op.ok());
    return op.status().message();
  };
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const int64_t block : {int64_t{0}, int64_t{-2}, std::numeric_limits<int64_t>::min()}) {
    const std::string value = "(" + std::to_string(block) + ") must be at least 1";
    says(message([&](Fp8GemmDesc* d) { d->block_n = block; }), ("desc.block_n " + value).c_str());
    says(message([&](Fp8GemmDesc* d) { d->block_k = block; }), ("desc.block_k " + value).c_str());
  }
  for (const DType type : {DType::kBF16, DType::kS8, DType::kE2M1, DType::kE8M0}) {
    says(message([&](Fp8GemmDesc* d) { d->weights = type; }), "must be e4m3 or e5m2");
  }
  says(message([](Fp8GemmDesc* d) { d->k = (int64_t{1} << 20) + 1; }), "desc.k");
}

TEST_P(Fp8Test, WeightsThatAreNotThePlans) {
  const GemmCase c = fp8_case(1, 20, 30, 8, 16);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  const auto refused = [&](const auto& breakage, const char* part) {
    Fp8Weights w = data.fp8_weights(0);
    breakage(&w);
    const Status s = op->pack_fp8(w);
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  };
  refused([](Fp8Weights* w) { w->codes.rows = 19; }, "w.codes.rows (19)");
  refused([](Fp8Weights* w) { w->codes.cols = 29; }, "w.codes.cols (29)");
  refused([](Fp8Weights* w) { w->codes.dtype = DType::kE5M2; }, "w.codes.dtype (e5m2)");
  refused([](Fp8Weights* w) { w->codes.dtype = DType::kU8; }, "w.codes.dtype (u8)");
  refused([](Fp8Weights* w) { w->codes.data = nullptr; }, "w.codes");
  refused([](Fp8Weights* w) { w->scale.data = nullptr; }, "w.scale");
  refused([](Fp8Weights* w) { w->scale = {}; }, "w.scale");
  refused([](Fp8Weights* w) { w->scale.rows = 2; }, "w.scale.rows (2)");
  refused([](Fp8Weights* w) { w->scale.cols = 1; }, "w.scale.cols (1)");
  refused([](Fp8Weights* w) { w->scale.dtype = DType::kE8M0; }, "w.scale.dtype (e8m0)");
  EXPECT_TRUE(op->pack_fp8(data.fp8_weights(0)).ok());
}

// Weights of other codes or blocks of K; blocks of columns are in the packed scales already.
TEST_P(Fp8Test, RunRefusesWeightsOfOtherPlans) {
  const GemmCase c = fp8_case(2, 20, 60, 8, 16);
  GemmData data(c);
  const auto message = [&](const auto& breakage) {
    GemmCase other = c;
    breakage(&other.problem);
    const GemmData other_data(other);
    GemmOp op = packed_op(ctx(), c, data);
    op.use(packed_op(ctx(), other, other_data).packed());
    return op.run(args_of(c, data)).message();
  };
  EXPECT_NE(message([](Problem* p) { p->weights = DType::kE5M2; }).find("weights.layout"),
            std::string::npos);
  EXPECT_NE(message([](Problem* p) { p->block_k = 20; }).find("weights.group (20)"),
            std::string::npos);
  EXPECT_EQ(message([](Problem* p) { p->block_n = 5; }), "ok");
}

// Threads share the panels out; every byte is the same.
TEST_P(Fp8Test, PackingWithThreadsGivesTheSameBytes) {
  auto pool = PersistentPool::create(3);
  ASSERT_TRUE(pool.ok());
  const Context threaded = context_at(isa(), pool->get());
  for (const bool gate_up : {false, true}) {
    GemmCase c = fp8_case(1, 200, 700, 16, 128);
    if (gate_up) c.problem.epilogue.activation = Activation::kSiluMul;
    GemmData data(c);
    EXPECT_EQ(bytes_of(packed_op(threaded, c, data).packed()),
              bytes_of(packed_op(ctx(), c, data).packed()));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Fp8Test, every_fp8(), gemm_test_name);

}  // namespace
}  // namespace quern::test
