#include "reference/quantize_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace quern::reference {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Output {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sums;
};

Output quantize(const std::vector<float>& a, int64_t rows, int64_t k, int64_t group = 0) {
  QuantizeRowsDesc desc;
  desc.k = k;
  desc.a = DType::kF32;
  desc.group = group;
  const int64_t groups = group ? (k + group - 1) / group : 1;
  Output out;
  out.q.resize(a.size());
  out.scale.resize(static_cast<size_t>(rows));
  out.sums.resize(static_cast<size_t>(rows * groups));
  const QuantizeRowsArgs args{matrix_view(a.data(), rows, k),
                              mutable_matrix_view(out.q.data(), rows, k),
                              mutable_vector_view(out.scale.data(), rows),
                              mutable_matrix_view(out.sums.data(), rows, groups)};
  EXPECT_TRUE(quantize_rows(desc, args).ok());
  return out;
}

TEST(QuantizeRows, ScalesTheLargestTo127) {
  // amax 254: scale 2, factor 0.5. 1 -> 0.5 -> 0 and 3 -> 1.5 -> 2: ties to even.
  const Output o = quantize({254, -254, 1, 3, 5, -3, 0, 10}, 1, 8);
  EXPECT_EQ(o.scale[0], 2.0f);
  EXPECT_EQ(o.q, (std::vector<int8_t>{127, -127, 0, 2, 2, -2, 0, 5}));
  EXPECT_EQ(o.sums[0], 7);
}

TEST(QuantizeRows, SumsPerGroupWithAPartialLastGroup) {
  const Output o = quantize({127, 1, 2, 3, 4, 5, 6}, 1, 7, 3);
  EXPECT_EQ(o.scale[0], 1.0f);
  EXPECT_EQ(o.sums, (std::vector<int32_t>{130, 12, 6}));
}

TEST(QuantizeRows, AZeroRowGivesZerosAndTheSmallestScale) {
  const float tiny = 1e-10f;
  const Output o = quantize({0, -0.0f, 0, 1e-45f}, 2, 2);
  EXPECT_EQ(o.q, (std::vector<int8_t>{0, 0, 0, 0}));
  EXPECT_EQ(o.scale[0], tiny / 127.0f);
  EXPECT_EQ(o.scale[1], tiny / 127.0f);
}

TEST(QuantizeRows, ARowThatIsNotFiniteIsNanAndAlone) {
  const Output o = quantize({127, 1, kNaN, 5, 2, -kInf, 1, 127}, 4, 2);
  EXPECT_EQ(o.q, (std::vector<int8_t>{127, 1, 0, 0, 0, 0, 1, 127}));
  EXPECT_EQ(o.scale[0], 1.0f);
  EXPECT_TRUE(std::isnan(o.scale[1]));
  EXPECT_TRUE(std::isnan(o.scale[2]));
  EXPECT_EQ(o.sums, (std::vector<int32_t>{128, 0, 0, 128}));
}

TEST(QuantizeRows, EmptyRowsStillGetAScale) {
  const Output o = quantize({}, 2, 0);
  EXPECT_EQ(o.scale[1], 1e-10f / 127.0f);
  EXPECT_EQ(o.sums[1], 0);
}

TEST(QuantizeRows, RefusesShapesThatDoNotFit) {
  QuantizeRowsDesc desc;
  desc.k = 4;
  const QuantizeRowsArgs args;  // a.cols is 0
  EXPECT_EQ(quantize_rows(desc, args).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quern::reference
