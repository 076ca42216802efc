// Generators as pure functions: names that round-trip, rules that are kept, equal bytes for equal
// configs. Nothing here runs generated code.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jit/generator.h"
#include "tests/jit/config_matrix.h"

namespace quern::jit {
namespace {

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
TEST(Generators, Bf16GemmFma) {
  check_family(all_bf16_fma(), parse_bf16_gemm_fma_avx512);
}
TEST(Generators, QuantizeRows) {
  check_family(all_quantize_rows(), parse_quantize_rows_avx512);
  check_family(all_int4_pack(), parse_int4_pack_avx512);
}
TEST(Generators, Int8GemmAmx) {
  check_family(all_int8_amx(), parse_int8_gemm_amx);
}
TEST(Generators, Bf16GemmAmx) {
  check_family(all_bf16_amx(), parse_bf16_gemm_amx);
}

TEST(Generators, GroupedGemmAvx512) {
  check_family(all_grouped(all_epilogues()), parse_grouped_gemm_avx512);
}
TEST(Generators, GroupedGemmAmx) {
  check_family(all_grouped_amx(all_epilogues()), parse_grouped_gemm_amx);
}
TEST(Generators, GroupedDecode) {
  check_family(all_grouped_decode(), parse_grouped_decode_avx512);
}
TEST(Generators, Nvfp4) {
  check_family(all_nvfp4(), parse_nvfp4_gemm_avx512);
  check_family(all_nvfp4_decode(), parse_nvfp4_decode_avx512);
}

// reliability.md, J4: what a config generates depends on nothing else, neither on the thread nor on
// what was generated before it.
TEST(Generators, SameBytesFromEveryThreadInEveryOrder) {
  const std::vector<AnyKernel> all = every_kernel();
  constexpr size_t kCases = 1000;
  ASSERT_GE(all.size(), kCases);
  const auto kernel = [&](size_t i) -> const AnyKernel& { return all[i * all.size() / kCases]; };
  std::vector<std::vector<uint8_t>> want;
  for (size_t i = 0; i < kCases; ++i) want.push_back(kernel(i).make()->bytes);
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<size_t> order(kCases);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(t)));
      // A heap in another state as well.
      std::vector<std::unique_ptr<char[]>> holes;
      for (const size_t i : order) {
        holes.push_back(std::make_unique<char[]>(16 + 48 * (i % 7)));
        if (kernel(i).make()->bytes != want[i]) ++different;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(different, 0);
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

TEST(Generators, NamesOfGroupedKernelsParseAsTheyAreWrittenOnly) {
  const std::string avx512 = "grouped_gemm.avx512.bf16u4bf16.mr4.nr2.pf0.epi=none";
  EXPECT_TRUE(parse_grouped_gemm_avx512(avx512 + ".fma.tl4.sf16.z8").has_value());
  const std::string floats = "grouped_gemm.avx512.bf16e4m3bf16.mr4.nr2.pf0.epi=none";
  EXPECT_TRUE(parse_grouped_gemm_avx512(floats + ".novbmi.fma.tl8.sf32.z8").has_value());
  EXPECT_FALSE(parse_grouped_gemm_avx512(floats + ".fma.novbmi.sf32.z8").has_value());
  for (const char* end :
       {"", ".sf16", ".z8.sf16", ".sf16.z8.fma", ".tl4.fma.sf16.z8", ".fma.tl0.sf16.z8",
        ".tl04.sf16.z8", ".fma.fma.sf16.z8", ".sf16.z8.z8", ".sf16.z8.wide.wide", ".sf64.z8",
        ".sf16.zu4", ".sf16.z8.poison.nobf16"}) {
    EXPECT_FALSE(parse_grouped_gemm_avx512(avx512 + end).has_value()) << end;
  }
  const std::string amx = "grouped_gemm.amx.s8u8bf16.mr32.nr2.pf0.epi=none";
  EXPECT_TRUE(parse_grouped_gemm_amx(amx + ".t64.sf16.zu8.wide").has_value());
  EXPECT_FALSE(
      parse_grouped_gemm_amx("grouped_gemm.amx.bf16s8bf16.mr32.nr2.pf0.epi=none.t64.sf16.z8")
          .has_value());
  EXPECT_FALSE(parse_grouped_gemm_avx512(amx + ".t64.sf16.zu8").has_value());
  for (const char* end :
       {"", ".t64", ".sf16.z8", ".t064.sf16.z8", ".sf16.z8.t64", ".t64.sf16.z8.fma"}) {
    EXPECT_FALSE(parse_grouped_gemm_amx(amx + end).has_value()) << end;
  }
  for (const char* name :
       {"grouped_decode.avx512.e4m3bf16.z8", "grouped_decode.avx512.e2m1bf16.vbmi",
        "grouped_decode.avx512.u4u8.z8", "grouped_decode.avx512.u4bf16",
        "grouped_decode.avx512.u4s8", "grouped_decode.avx512.u4s16.z8",
        "grouped_decode.avx512.u4bf16.poison.z8", "grouped_decode.avx512.u4u8.poison.poison"}) {
    EXPECT_FALSE(parse_grouped_decode_avx512(name).has_value()) << name;
  }
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
