// What stored fp4 weights can get wrong, and where they can lie.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/packed_weights_builder.h"
#include "tests/ops/gemm_fixture.h"

namespace quern::test {
namespace {

class Fp4ErrorsTest : public GemmTest {
 protected:
  static void expect_status(const Status& s, StatusCode code, const std::string& text,
                            const std::string& what) {
    EXPECT_EQ(s.code(), code) << what << ": " << s.message();
    EXPECT_NE(s.message().find(text), std::string::npos) << what << ": " << s.message();
  }
};
using Fp4MemoryTest = GemmTest;

struct PackError {
  const char* name;
  std::function<void(Fp4Weights&)> breakage;
  const char* in_message;
};

const std::vector<PackError>& pack_errors() {
  using W = Fp4Weights;
  static const std::vector<PackError> rows = {
      {"codes null", [](W& w) { w.codes.data = nullptr; }, "w.codes.data"},
      {"codes type", [](W& w) { w.codes.dtype = DType::kS8; }, "w.codes.dtype (s8) must be u8"},
      {"codes rows", [](W& w) { w.codes.rows -= 1; }, "w.codes.rows"},
      {"codes a byte each", [](W& w) { w.codes.cols = w.codes.row_stride = 33; }, "w.codes.cols"},
      {"codes of even k", [](W& w) { w.codes.cols -= 1; }, "w.codes.cols"},
      {"codes stride", [](W& w) { w.codes.row_stride = w.codes.cols - 1; }, "w.codes.row_stride"},
      {"scale null", [](W& w) { w.scale.data = nullptr; }, "w.scale.data"},
      {"scale absent", [](W& w) { w.scale = MatrixView(); }, "w.scale"},
      {"scale type", [](W& w) { w.scale.dtype = DType::kE8M0; },
       "w.scale.dtype (e8m0) must be e4m3"},
      {"scale rows", [](W& w) { w.scale.rows += 1; }, "w.scale.rows"},
      {"scale of 32", [](W& w) { w.scale.cols -= 1; }, "w.scale.cols"},
      {"scale stride", [](W& w) { w.scale.row_stride = 1; }, "w.scale.row_stride (1)"},
      {"global absent", [](W& w) { w.global = VectorView(); }, "w.global"},
      {"global null", [](W& w) { w.global.data = nullptr; }, "w.global.data"},
      {"global type", [](W& w) { w.global.dtype = DType::kBF16; }, "w.global.dtype (bf16)"},
      {"global a column", [](W& w) { w.global.size = 20; }, "w.global.size (20)"},
      {"global is", [](W& w) { w.global_is = static_cast<Fp4Global>(2); }, "w.global_is (2)"},
  };
  return rows;
}

TEST_P(Fp4ErrorsTest, OperandsOfPack) {
  const GemmCase c = make_case(kind(), 1, 20, 33);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack_fp4(data.fp4[0].weights()).ok());
  for (const PackError& e : pack_errors()) {
    Fp4Weights w = data.fp4[0].weights();
    e.breakage(w);
    expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, e.in_message, e.name);
  }
}

// Both NaNs of e4m3, at the places where words of eight begin, end and are not whole.
TEST_P(Fp4ErrorsTest, ScalesThatAreNaN) {
  GemmCase c = make_case(kind(), 1, 18, 16 * 19);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  TestMatrix& scale = data.fp4[0].scale;
  for (const int64_t row : {0, 17}) {
    for (int64_t block = 0; block < 19; ++block) {
      for (const uint32_t nan : {0x7fu, 0xffu}) {
        const uint32_t before = scale.bits(row, block);
        scale.set_bits(row, block, nan);
        const std::string place = std::to_string(row) + ", " + std::to_string(block);
        expect_status(op->pack_fp4(data.fp4[0].weights()), StatusCode::kInvalidArgument,
                      "w.scale[" + place + "] is NaN", place);
        scale.set_bits(row, block, before);
      }
    }
  }
  for (const uint32_t largest : {0x7eu, 0xfeu, 0x80u}) {
    scale.set_bits(3, 8, largest);
    EXPECT_TRUE(op->pack_fp4(data.fp4[0].weights()).ok()) << largest;
  }
}

TEST_P(Fp4ErrorsTest, NamesOfPartsAreInMessages) {
  GemmCase c = make_case(kind(), 1, 20, 33);
  c.problem.epilogue.activation = Activation::kSiluMul;
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  data.fp4[1].scale.set_bits(19, 2, 0xff);
  expect_status(op->pack(data), StatusCode::kInvalidArgument, "up.scale[19, 2] is NaN", "up");
  data.fp4[0].global.set(0, 0, 0);
  expect_status(op->pack(data), StatusCode::kInvalidArgument, "gate.global must be", "gate");
  expect_status(op->pack_as(data, false), StatusCode::kInvalidArgument, "pack_gate_up", "one part");
}

TEST_P(Fp4ErrorsTest, GlobalScalesThatAreNone) {
  const GemmCase c = make_case(kind(), 1, 20, 33);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const bool divisor : {false, true}) {
    for (const float value : {0.0f, -0.0f, -1.0f, kInfinity, -kInfinity, std::nanf("")}) {
      data.fp4[0].global.set(0, 0, value);
      Fp4Weights w = data.fp4[0].weights();
      w.global_is = divisor ? Fp4Global::kDivisor : Fp4Global::kMultiplier;
      expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.global must be finite",
                    std::to_string(value));
    }
  }
  // 2^-130 is a multiplier; what it divides by is beyond f32.
  data.fp4[0].global.set_bits(0, 0, 1u << 19);
  Fp4Weights w = data.fp4[0].weights();
  EXPECT_TRUE(op->pack_fp4(w).ok());
  w.global_is = Fp4Global::kDivisor;
  expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.global must be", "2^-130");
}

TEST_P(Fp4ErrorsTest, DescsThatAreRefused) {
  Fp4GemmDesc desc;
  desc.n = 16;
  desc.k = (int64_t{1} << 20) + 1;
  expect_status(Fp4Gemm::create(ctx(), desc).status(), StatusCode::kTooLarge, "desc.k", "k");
  desc.k = 16;
  desc.format = static_cast<Fp4Format>(2);
  expect_status(Fp4Gemm::create(ctx(), desc).status(), StatusCode::kInvalidArgument,
                "desc.format (2)", "format");
  desc.format = Fp4Format::kNvfp4;
  desc.c = DType::kF16;
  expect_status(Fp4Gemm::create(ctx(), desc).status(), StatusCode::kInvalidArgument, "desc.c", "c");
}

TEST_P(Fp4ErrorsTest, Mxfp4) {
  const GemmCase c = make_case(kFp4Kinds[1], 1, 18, 33 * 32);
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  const Fp4Weights good = data.fp4[0].weights();
  ASSERT_TRUE(op->pack_fp4(good).ok());
  Fp4Weights w = good;
  w.scale.dtype = DType::kE4M3;
  expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.scale.dtype (e4m3) must be e8m0",
                "type");
  w = good;
  w.scale.cols *= 2;
  w.scale.row_stride *= 2;
  expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.scale.cols", "of 16");
  const float global = 1;
  w = good;
  w.global = {&global, DType::kF32, 1};
  expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.global given", "global");
  w = good;
  w.global.size = 1;
  expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.global.size (1)", "size");
  w = good;
  w.global_is = Fp4Global::kDivisor;
  expect_status(op->pack_fp4(w), StatusCode::kInvalidArgument, "w.global_is (1)", "global is");
  for (const auto& [row, block] : {std::pair<int64_t, int64_t>{0, 0}, {17, 32}, {5, 8}}) {
    const uint32_t before = data.fp4[0].scale.bits(row, block);
    data.fp4[0].scale.set_bits(row, block, 0xff);
    expect_status(op->pack_fp4(good), StatusCode::kInvalidArgument,
                  "w.scale[" + std::to_string(row) + ", " + std::to_string(block) + "] is NaN",
                  "NaN");
    data.fp4[0].scale.set_bits(row, block, before);
  }
}

// Rows of codes and scales 2^32 bytes apart.
TEST_P(Fp4MemoryTest, StoredRowsFarApart) {
  const int64_t stride = (int64_t{1} << 32) + 3;
  const GemmCase c = make_case(kind(), 2, 9, 37);
  GemmData data(c);
  const std::vector<uint32_t> expected = bits_in(ctx(), c);
  SparseBuffer far[2] = {SparseBuffer(size_t{9} << 33), SparseBuffer(size_t{9} << 33)};
  if (!far[0].data() || !far[1].data()) {
    GTEST_SKIP() << "the system refuses 144 GiB of address space";
  }
  Fp4Weights w = data.fp4[0].weights();
  size_t next = 0;
  for (MatrixView* view : {&w.codes, &w.scale}) {
    unsigned char* const to = far[next++].data();
    for (int64_t i = 0; i < view->rows; ++i) {
      std::memcpy(to + i * stride, static_cast<const char*>(view->data) + i * view->row_stride,
                  static_cast<size_t>(view->cols));
    }
    view->data = to;
    view->row_stride = stride;
  }
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  const Status s = op->pack_fp4(w);
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(output_bits(*op, c, data), expected);
}

TEST_P(Fp4MemoryTest, ManyColumnsOfDepthOneSlow) {
  const int64_t n = (int64_t{1} << 20) + 5;
  const GemmCase c = make_case(kind(), 8, n, 1);
  std::vector<uint8_t> codes(static_cast<size_t>(n), 0xf0), scale(static_cast<size_t>(n), 0x38);
  codes.front() = codes.back() = 0xf5;  // 3, and a nibble that is no weight
  const float global = 0.5f;
  Fp4Weights w;
  w.codes = {codes.data(), DType::kU8, n, 1, 1};
  w.scale = {scale.data(), DType::kE4M3, n, 1, 1};
  w.global = {&global, DType::kF32, 1};
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE(op->pack_fp4(w).ok());
  GemmData data(make_case(kind(), 8, 1, 1));
  data.a.set_all(2);
  TestMatrix out(DType::kBF16, 8, n);
  GemmOp::Args args;
  args.a = data.a.view();
  args.c = out.mutable_view();
  ASSERT_TRUE(op->run(args).ok());
  for (const int64_t i : {0, 7}) {
    EXPECT_EQ(out.get(i, 0), 3.0);
    EXPECT_EQ(out.get(i, n - 1), 3.0);
    EXPECT_EQ(out.get(i, n / 2), 0.0);
  }
}

// bug_log B16: sizes whose bytes fit no memory. The views are longer than theirs: a size check that
// fails has read nothing yet.
TEST_P(Fp4ErrorsTest, PackedSizesThatCannotBe) {
  const int64_t n = int64_t{1} << 40, k = int64_t{1} << 20;
  const Result<GemmOp> op = GemmOp::create(ctx(), make_case(kind(), 0, n, k));
  ASSERT_TRUE(op.ok()) << op.status().message();
  GemmOp packer = *op;
  const uint8_t byte = 0;
  const float global = 1;
  Fp4Weights w;
  w.codes = {&byte, DType::kU8, n, k / 2, k / 2};
  w.scale = {&byte, DType::kE4M3, n, k / 16, k / 16};
  w.global = {&global, DType::kF32, 1};
  EXPECT_EQ(packer.pack_fp4(w).code(), StatusCode::kTooLarge);
  const WeightShape shape{WeightLayout::kNvfp4N16, int64_t{1} << 47, int64_t{1} << 20};
  EXPECT_EQ(weight_geometry(shape).status().code(), StatusCode::kTooLarge);
  EXPECT_EQ(weight_geometry({WeightLayout::kNvfp4N16, 16, (int64_t{1} << 20) + 1}).status().code(),
            StatusCode::kTooLarge);
  const auto whole = weight_geometry({WeightLayout::kNvfp4N16GateUp, 17, 33});
  ASSERT_TRUE(whole.ok());
  // 4 panels of 64 depths, 64 columns' scales, 4 blocks of 64 columns.
  EXPECT_EQ(whole->bytes, 4 * 64 * 8 + 64 * 4 + 4 * 64);
}

INSTANTIATE_TEST_SUITE_P(Ops, Fp4ErrorsTest,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::Values(kFp4Kinds[0])),
                         gemm_test_name);
INSTANTIATE_TEST_SUITE_P(Ops, Fp4MemoryTest,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::Values(kFp4Kinds[0])),
                         gemm_test_name);

}  // namespace
}  // namespace quern::test
