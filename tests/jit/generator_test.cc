// Generators as pure functions: names that round-trip, rules that are kept, equal bytes for equal
// configs. Nothing here runs generated code.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jit/bf16_gemm_avx512.h"
#include "jit/generator.h"
#include "jit/int8_gemm_avx512.h"
#include "jit/quantize_rows_avx512.h"

namespace quern::jit {
namespace {

std::vector<GemmEpilogue> all_epilogues() {
  std::vector<GemmEpilogue> all;
  for (DType c : {DType::kBF16, DType::kF32}) {
    for (int bits = 0; bits < 8; ++bits) {
      all.push_back({c, (bits & 1) != 0, (bits & 2) != 0 ? Activation::kSiluMul : Activation::kNone,
                     (bits & 4) != 0});
    }
  }
  return all;
}

template <typename Config>
std::vector<Config> with_shapes(const Config& base) {
  std::vector<Config> all;
  for (int mr = 0; mr <= 17; ++mr) {
    for (int nr = 0; nr <= 5; ++nr) {
      for (const GemmEpilogue& epilogue : all_epilogues()) {
        Config config = base;
        config.mr = mr;
        config.nr = nr;
        config.epilogue = epilogue;
        all.push_back(config);
      }
    }
  }
  return all;
}

std::vector<Int8GemmAvx512Config> all_int8() {
  std::vector<Int8GemmAvx512Config> all;
  for (bool wide : {false, true}) {
    for (int prefetch : {0, 1024}) {
      const auto some =
          with_shapes<Int8GemmAvx512Config>({{.prefetch = prefetch, .poison = wide}, wide});
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

std::vector<Bf16GemmAvx512Config> all_bf16() {
  std::vector<Bf16GemmAvx512Config> all;
  for (DType b : {DType::kBF16, DType::kU8}) {
    for (int prefetch : {0, 512}) {
      const auto some =
          with_shapes<Bf16GemmAvx512Config>({{.prefetch = prefetch, .poison = prefetch != 0}, b});
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

// Every legal config generates, twice the same bytes, under a name of its own that parses back to
// it; every illegal one is refused with a rule. This is also the proof that the register budget in
// invalid() is right: a shape that passes it and runs out of registers would fail here.
template <typename Config, typename Parse>
void check_family(const std::vector<Config>& configs, const Parse& parse) {
  std::set<std::string> names;
  int legal = 0;
  for (const Config& config : configs) {
    const std::string name = to_string(config);
    const auto code = generate(config);
    if (invalid(config) != nullptr) {
      EXPECT_EQ(code.status().code(), StatusCode::kInvalidArgument) << name;
      continue;
    }
    ++legal;
    ASSERT_TRUE(code.ok()) << name << ": " << code.status().message();
    EXPECT_TRUE(names.insert(name).second) << name << " names two configs";
    const auto parsed = parse(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_TRUE(*parsed == config) << name;
    EXPECT_EQ(code->name, name);
    EXPECT_FALSE(code->register_map.empty());
    // Something of another size in between moves the heap's next answer.
    const std::vector<char> shift(static_cast<size_t>(16 + 48 * (legal % 7)));
    EXPECT_TRUE(code->bytes == generate(config)->bytes) << name << ": other bytes the second time";
  }
  EXPECT_GT(legal, 0);
  ::testing::Test::RecordProperty("legal_configs", legal);
}

TEST(Generators, Int8Gemm) {
  check_family(all_int8(), parse_int8_gemm_avx512);
}
TEST(Generators, Bf16Gemm) {
  check_family(all_bf16(), parse_bf16_gemm_avx512);
}
TEST(Generators, QuantizeRows) {
  std::vector<QuantizeRowsAvx512Config> all;
  for (DType a : {DType::kBF16, DType::kF32, DType::kS8, DType::kU8, DType::kF16}) {
    for (int pad : {0, 1, 4, 16, 64}) {
      for (bool poison : {false, true}) all.push_back({a, pad, poison});
    }
  }
  check_family(all, parse_quantize_rows_avx512);
}

TEST(Generators, NamesThatToStringWouldNotWriteDoNotParse) {
  for (const char* name : {"", ".", "int8_gemm", "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0",
                           "int8_gemm.avx512.s8u8bf16.mr06.nr4.pf0.epi=none",
                           "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none.",
                           "int8_gemm.avx512.s8u8.mr6.nr4.pf0.epi=none",
                           "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=residual+bias",
                           "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none.poison.wide",
                           "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none.poison.poison",
                           "int8_gemm.avx512.s8u8bf16.mr-6.nr4.pf0.epi=none",
                           "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf9999999999.epi=none",
                           "bf16_gemm.avx512.bf16bf16bf16.mr6.nr4.pf0.epi=none"}) {
    EXPECT_FALSE(parse_int8_gemm_avx512(name).has_value()) << name;
  }
  EXPECT_TRUE(parse_int8_gemm_avx512("int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none").has_value());
}

class Careless : public Generator {
 public:
  Careless(std::function<void(Careless&)> body, size_t bytes)
      : Generator("careless", 0, false, bytes), body_(std::move(body)) {}
  using Generator::gp;
  using Generator::vec;
  void fill(int count) {
    for (int i = 0; i < count; ++i) nop();
  }
  void jump_nowhere() {
    Xbyak::Label never;
    jmp(never, T_NEAR);
  }

 private:
  void emit() override { body_(*this); }
  std::function<void(Careless&)> body_;
};

TEST(Generator, RuleBreakersGetAStatusNotACrash) {
  EXPECT_EQ(Careless([](Careless& g) { g.fill(5000); }, 4096).generate().status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(Careless([](Careless& g) { g.jump_nowhere(); }, 4096).generate().status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(Careless(
                [](Careless& g) {
                  for (int i = 0; i < 33; ++i) g.vec.take("x");
                },
                4096)
                .generate()
                .status()
                .code(),
            StatusCode::kInternal);
  EXPECT_TRUE(Careless([](Careless& g) { g.fill(4096); }, 4096).generate().ok());
}

}  // namespace
}  // namespace quern::jit
