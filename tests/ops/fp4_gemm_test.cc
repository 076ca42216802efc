// What fp4_gemm promises beyond what holds for every GEMM: exact decoding, the bits of bf16_gemm,
// global scales, and the packed form.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "quern/bf16_gemm.h"
#include "tests/ops/gemm_fixture.h"
#include "tests/ops/test_pools.h"
#include "tests/support/temp_dir.h"

namespace quern::test {
namespace {

using Nvfp4Test = GemmTest;

bool is_nan(int byte) {
  return (byte & 0x7f) == 0x7f;
}

/// C = A W^T in f32, of a plan of the case's own.
std::vector<float> product(const Context& ctx, const GemmCase& c, GemmData& data) {
  Result<GemmOp> op = GemmOp::create(ctx, c);
  EXPECT_TRUE(op.ok()) << op.status().message();
  EXPECT_TRUE(op->pack(data).ok());
  const Status s = op->run(args_of(c, data));
  EXPECT_TRUE(s.ok()) << s.message();
  std::vector<float> out;
  for (int64_t i = 0; i < c.problem.m; ++i) {
    for (int64_t j = 0; j < c.problem.n; ++j) out.push_back(static_cast<float>(data.c.get(i, j)));
  }
  return out;
}

// A row of A that is 1 at one depth asks for the weights there: 16 codes at 16 depths, a column for
// each byte that is a scale. 3 rows decode in registers, 32 from scratch.
TEST_P(Nvfp4Test, EveryCodeWithEveryScaleDecodesExactly) {
  std::vector<int> scales;
  for (int byte = 0; byte < 256; ++byte) {
    if (!is_nan(byte)) scales.push_back(byte);
  }
  ASSERT_EQ(scales.size(), 254u);
  for (const int64_t rows : {3, 32}) {
    GemmCase c = make_case(kind(), rows, 254, 48);
    c.problem.c = DType::kF32;
    GemmData data(c);
    data.fp4[0].global.set(0, 0, 1);
    for (int64_t block = 0; block < 3; ++block) {
      for (int64_t n = 0; n < 254; ++n) {
        const auto s = static_cast<size_t>(n + 100 * block) % scales.size();
        data.fp4[0].scale.set_bits(n, block, static_cast<uint32_t>(scales[s]));
        for (int64_t k = 0; k < 16; ++k) {
          data.fp4[0].set_code(n, 16 * block + k, static_cast<int>(k + n) % 16);
        }
      }
    }
    for (int64_t first = 0; first < 48; first += rows) {
      data.a.set_all(0);
      for (int64_t i = 0; i < rows && first + i < 48; ++i) data.a.set(i, first + i, 1);
      const std::vector<float> got = product(ctx(), c, data);
      for (int64_t i = 0; i < rows && first + i < 48; ++i) {
        for (int64_t n = 0; n < 254; ++n) {
          ASSERT_EQ(got[static_cast<size_t>(i * 254 + n)], data.fp4[0].value(n, first + i))
              << "depth " << first + i << " column " << n << ", " << rows << " rows";
        }
      }
    }
  }
}

// The weights without their global scale, decoded here, are what bf16_gemm multiplies; a product in
// f32 with the global scale is all that comes after.
TEST_P(Nvfp4Test, HasTheBitsOfBf16GemmOnDecodedWeights) {
  int values = 0;
  for (const Fill fill : {Fill::kRandom, Fill::kExtreme}) {
    for (const int64_t m : {1, 2, 3, 4, 5, 7, 12, 16, 17, 33}) {
      for (const int64_t k : {1, 2, 15, 16, 17, 31, 33, 63, 64, 97, 200, 515}) {
        GemmCase c = make_case(kind(), m, 40, k);
        c.problem.c = DType::kF32;
        c.fill = fill;
        c.seed = static_cast<uint64_t>(m * 1000 + k);
        GemmData data(c);
        const std::vector<float> got = product(ctx(), c, data);
        GemmCase b = make_case(kGemmKinds[0], m, 40, k);
        b.problem.c = DType::kF32;
        GemmData decoded(b);
        for (int64_t n = 0; n < 40; ++n) {
          // A zero of any sign is +0: it shows only in the sign of sums that underflowed.
          for (int64_t i = 0; i < k; ++i) decoded.w[0].set(n, i, data.fp4[0].value(n, i) + 0.0);
        }
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < k; ++j) decoded.a.set_bits(i, j, data.a.bits(i, j));
        }
        const std::vector<float> sums = product(ctx(), b, decoded);
        const auto global = static_cast<float>(data.fp4[0].global.get(0, 0));
        for (size_t i = 0; i < got.size(); ++i) {
          const float want = sums[i] * global;
          if (std::isnan(want) && std::isnan(got[i])) continue;
          ASSERT_EQ(std::memcmp(&got[i], &want, 4), 0)
              << got[i] << " for " << want << " at " << i << ": " << to_string(c);
          values += want != 0 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(values, 10000);
}

// Gate and up keep their own: silu(3 * 2) * (3 * 0.25) is 6 / (1 + e^-6) * 0.75.
TEST_P(Nvfp4Test, GateAndUpHaveGlobalScalesOfTheirOwn) {
  for (const int64_t m : {1, 20}) {
    GemmCase c = make_case(kind(), m, 17, 1);
    c.problem.c = DType::kF32;
    c.problem.epilogue.activation = Activation::kSiluMul;
    GemmData data(c);
    data.a.set_all(1);
    for (Fp4Operand& operand : data.fp4) {
      for (int64_t n = 0; n < 17; ++n) {
        operand.scale.set_bits(n, 0, 0x40);  // 2
        operand.set_code(n, 0, 3);           // 1.5
      }
    }
    data.fp4[0].global.set(0, 0, 2);
    data.fp4[1].global.set(0, 0, 0.25);
    const double want = 6 / (1 + std::exp(-6.0)) * 0.75;
    for (const float x : product(ctx(), c, data)) EXPECT_NEAR(x, want, 1e-6);
  }
}

// compressed-tensors stores the reciprocal: 1 / 3 rounded to f32 multiplies.
TEST_P(Nvfp4Test, ADivisorIsInvertedOnceInF32) {
  GemmCase c = make_case(kind(), 1, 1, 1);
  c.problem.c = DType::kF32;
  c.global_is = Fp4Global::kDivisor;
  GemmData data(c);
  data.a.set_all(1);
  data.fp4[0].scale.set_bits(0, 0, 0x38);  // 1
  data.fp4[0].set_code(0, 0, 7);           // 6
  data.fp4[0].global.set(0, 0, 3);
  EXPECT_EQ(product(ctx(), c, data)[0], 6.0f * 0x1.555556p-2f);
}

// The form that packed_weights.h describes, byte for byte.
TEST_P(Nvfp4Test, PackedBytesAreThoseOfTheLayout) {
  constexpr int kNibble[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{19, 7}, {16, 64}, {33, 81}, {1, 1}, {48, 130}, {17, 32}}) {
    GemmCase c = make_case(kind(), 1, n, k);
    c.problem.epilogue.activation = k == 81 ? Activation::kSiluMul : Activation::kNone;
    c.fill = Fill::kExtreme;
    c.w_pad = 3;
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(data).ok());
    const PackedWeights& w = op->packed();
    const int64_t padded = (k + 31) / 32 * 32, parts = c.parts();
    const int64_t panels = (n + 15) / 16 * parts;
    EXPECT_EQ(w.panel_bytes(), padded * 8);
    ASSERT_NE(w.block_scales(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.block_scales()) % 64, 0u);
    EXPECT_EQ(w.group_scales(), nullptr);
    for (int64_t p = 0; p < panels; ++p) {
      const Fp4Operand& from = data.fp4[p % parts];
      for (int64_t column = 0; column < 16; ++column) {
        const int64_t row = p / parts * 16 + column;
        const bool exists = row < n;
        EXPECT_EQ(w.scales()[p * 16 + column],
                  exists ? static_cast<float>(from.global.get(0, 0)) : 0.0f);
        for (int64_t d = 0; d < padded; ++d) {
          const auto t = w.block_scales()[p * padded + d / 16 * 16 + column];
          uint32_t word;
          std::memcpy(&word, w.data() + p * w.panel_bytes() + d / 8 * 64 + column * 4, 4);
          const int code = static_cast<int>(word >> 4 * kNibble[d % 8] & 15);
          if (!exists || d >= k) {
            ASSERT_EQ(code, 0) << row << ' ' << d;
            if (!exists || d >= (k + 15) / 16 * 16) {
              ASSERT_EQ(t, 0) << row << ' ' << d;
            }
            continue;
          }
          bfloat16 scale;
          scale.bits = static_cast<uint16_t>(0x4400 - 16 * t);
          const auto magnitude =
              std::fabs(e4m3_value(static_cast<uint8_t>(from.scale.bits(row, d / 16))));
          if (magnitude != 0) {
            ASSERT_EQ(scale.to_float(), magnitude) << row << ' ' << d;
          }
          ASSERT_EQ(kE2M1Values[code] * (magnitude == 0 ? 0.0 : scale.to_float()),
                    from.value(row, d))
              << row << ' ' << d;
        }
      }
    }
  }
}

TEST_P(Nvfp4Test, PacksTheSameBytesOnAnyNumberOfThreads) {
  GemmCase c = make_case(kind(), 1, 333, 171);
  c.fill = Fill::kExtreme;
  GemmData data(c);
  std::vector<std::byte> want;
  for (const int threads : {1, 2, 5, 16}) {
    ScriptedPool pool(threads);
    const Context ctx = context_at(isa(), &pool);
    Result<GemmOp> op = GemmOp::create(ctx, c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(data).ok());
    const std::vector<std::byte> got(op->packed().data(),
                                     op->packed().data() + op->packed().bytes());
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << threads;
  }
}

TEST_P(Nvfp4Test, SavedWeightsComeBack) {
  const TempDir dir;
  for (const bool gate_up : {false, true}) {
    GemmCase c = make_case(kind(), 5, 35, 77);
    if (gate_up) c.problem.epilogue.activation = Activation::kSiluMul;
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(data).ok());
    const std::vector<uint32_t> want = output_bits(*op, c, data);
    const std::string path = dir.path() + "/w";
    ASSERT_TRUE(op->packed().save(path).ok());
    const auto mapped = PackedWeights::map(path, {.verify = true});
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    EXPECT_EQ(mapped->layout(), op->packed().layout());
    op->use(*mapped);
    EXPECT_EQ(output_bits(*op, c, data), want);
  }
}

// At level amx the bits of few rows are those of tiles; kFastest may use the others.
TEST_P(Nvfp4Test, WhichKernelsAPlanHas) {
  GemmCase c = make_case(kind(), 1, 64, 64);
  const bool amx = isa().level == IsaLevel::kAmx;
  for (const bool fastest : {false, true}) {
    c.invariance = fastest ? Invariance::kFastest : Invariance::kStrict;
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    const std::string text = op->explain();
    const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
    EXPECT_TRUE(has("weights decoded by nvfp4_decode.avx512.e2m1bf16")) << text;
    EXPECT_EQ(has("bf16_gemm.amx.bf16bf16bf16"), amx) << text;
    EXPECT_TRUE(has(".cs")) << text;
    EXPECT_EQ(has("nvfp4_gemm.avx512"), fastest || !amx) << text;
  }
}

using Mxfp4Test = GemmTest;

// As for NVFP4: 16 codes, a column for each of 255 powers of two, of which f32 holds 2^128 and more
// as infinity. In registers and from scratch.
TEST_P(Mxfp4Test, EveryCodeWithEveryScaleDecodesExactly) {
  for (const int64_t rows : {2, 32}) {
    GemmCase c = make_case(kind(), rows, 255, 64);
    c.problem.c = DType::kF32;
    GemmData data(c);
    for (int64_t n = 0; n < 255; ++n) {
      data.fp4[0].scale.set_bits(n, 0, static_cast<uint32_t>(n));
      data.fp4[0].scale.set_bits(n, 1, static_cast<uint32_t>(254 - n));
      for (int64_t k = 0; k < 64; ++k) data.fp4[0].set_code(n, k, static_cast<int>(k + n) % 16);
    }
    for (int64_t first = 0; first < 64; first += rows) {
      data.a.set_all(0);
      for (int64_t i = 0; i < rows; ++i) data.a.set(i, first + i, 1);
      const std::vector<float> got = product(ctx(), c, data);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t n = 0; n < 255; ++n) {
          // The other block contributes 0 * 2^e.
          ASSERT_EQ(got[static_cast<size_t>(i * 255 + n)],
                    static_cast<float>(data.fp4[0].value(n, first + i)))
              << "depth " << first + i << " column " << n << ", " << rows << " rows";
        }
      }
    }
  }
}

TEST_P(Mxfp4Test, PackedBytesAreThoseOfTheLayout) {
  constexpr int kNibble[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{19, 7}, {16, 64}, {33, 81}, {1, 1}, {17, 33}}) {
    GemmCase c = make_case(kind(), 1, n, k);
    c.fill = Fill::kExtreme;
    c.w_pad = 3;
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok());
    ASSERT_TRUE(op->pack(data).ok());
    const PackedWeights& w = op->packed();
    EXPECT_EQ(w.layout(), WeightLayout::kE2M1Vnni8N16);
    EXPECT_EQ(w.scale_dtype(), DType::kBF16);
    EXPECT_EQ(w.group(), std::min<int64_t>(k, 32));
    EXPECT_EQ(w.block_scales(), nullptr);
    const int64_t padded = w.panel_bytes() / 8;
    EXPECT_EQ(padded, k < 32 ? (k + 7) / 8 * 8 : (k + 31) / 32 * 32);
    for (int64_t row = 0; row < (n + 15) / 16 * 16; ++row) {
      for (int64_t d = 0; d < padded; ++d) {
        bfloat16 scale;
        std::memcpy(&scale.bits,
                    static_cast<const std::byte*>(w.group_scales()) +
                        ((row / 16 * w.groups() + d / 32) * 16 + row % 16) * 2,
                    2);
        uint32_t word;
        std::memcpy(&word, w.data() + row / 16 * w.panel_bytes() + d / 8 * 64 + row % 16 * 4, 4);
        const int code = static_cast<int>(word >> 4 * kNibble[d % 8] & 15);
        const bool exists = row < n && d < k;
        ASSERT_EQ(code, exists ? data.fp4[0].code(row, d) : 0) << row << ' ' << d;
        if (row >= n) {
          ASSERT_EQ(scale.bits, 0);
        } else if (exists) {
          ASSERT_EQ(scale.to_float(), data.fp4[0].scale_at(row, d));
        }
      }
    }
  }
}

TEST_P(Mxfp4Test, SavedWeightsComeBack) {
  const TempDir dir;
  GemmCase c = make_case(kind(), 5, 35, 77);
  c.problem.epilogue.activation = Activation::kSiluMul;
  GemmData data(c);
  Result<GemmOp> op = GemmOp::create(ctx(), c);
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE(op->pack(data).ok());
  const std::vector<uint32_t> want = output_bits(*op, c, data);
  const std::string path = dir.path() + "/w";
  ASSERT_TRUE(op->packed().save(path).ok());
  const auto mapped = PackedWeights::map(path, {.verify = true});
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  op->use(*mapped);
  EXPECT_EQ(output_bits(*op, c, data), want);
}

// Neither format's plan takes the other's weights.
TEST_P(Mxfp4Test, FormatsAreNotMixed) {
  GemmCase c = make_case(kind(), 1, 20, 64), other = make_case(kFp4Kinds[0], 1, 20, 64);
  GemmData data(c), other_data(other);
  Result<GemmOp> op = GemmOp::create(ctx(), c), other_op = GemmOp::create(ctx(), other);
  ASSERT_TRUE(op.ok() && other_op.ok());
  EXPECT_FALSE(op->pack_fp4(other_data.fp4[0].weights()).ok());
  ASSERT_TRUE(op->pack(data).ok());
  ASSERT_TRUE(other_op->pack(other_data).ok());
  op->use(other_op->packed());
  EXPECT_EQ(op->run(args_of(c, data)).code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ops, Mxfp4Test,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::Values(kFp4Kinds[1])),
                         gemm_test_name);
INSTANTIATE_TEST_SUITE_P(Ops, Nvfp4Test,
                         ::testing::Combine(::testing::ValuesIn(isas_to_test()),
                                            ::testing::Values(kFp4Kinds[0])),
                         gemm_test_name);

}  // namespace
}  // namespace quern::test
