#include "bench/problem_list.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "bench/usage_error.h"

namespace quern::bench {
namespace {

std::string usage_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

std::vector<std::string> names(const std::vector<Problem>& problems) {
  std::vector<std::string> out;
  for (const Problem& p : problems) out.push_back(to_string(p));
  return out;
}

TEST(ParseShapes, ListsWithAndWithoutSpaces) {
  EXPECT_EQ(parse_shapes("16384x4096"), (std::vector<Shape>{{16384, 4096}}));
  EXPECT_EQ(parse_shapes("1x2, 3 x 4"), (std::vector<Shape>{{1, 2}, {3, 4}}));
}

TEST(ParseShapes, QuotesWhatIsWrong) {
  for (const char* text : {"", "12", "12x", "x12", "0x4", "4x0", "-1x4", "1x2,,3x4", "1x2x3",
                           "4096x99999999999999999999", "1X2"}) {
    const std::string error = usage_error_of([&] { parse_shapes(text); });
    EXPECT_NE(error.find("expected NxK"), std::string::npos) << text << ": " << error;
  }
  EXPECT_NE(usage_error_of([] { parse_shapes("1x2,abc"); }).find("'abc'"), std::string::npos);
}

TEST(ParseShapeFile, CommentsAndBlankLines) {
  EXPECT_EQ(parse_shape_file("# head\n\n 16 x 32  # first\r\n8x4", "f"),
            (std::vector<Shape>{{16, 32}, {8, 4}}));
}

TEST(ParseShapeFile, NamesTheLine) {
  EXPECT_EQ(usage_error_of([] {
              parse_shape_file("1 x 2\nnonsense # 3 x 4\n", "my.txt");
            }).rfind("my.txt:2: ", 0),
            0u);
  EXPECT_EQ(usage_error_of([] { parse_shape_file("# only\n", "my.txt"); }),
            "my.txt: holds no shape");
}

TEST(ShapesFromArgument, ShippedFilesAreFoundByName) {
  const std::vector<Shape> qwen = shapes_from_argument("qwen3_5");
  EXPECT_GE(qwen.size(), 30u);
  EXPECT_NE(std::find(qwen.begin(), qwen.end(), Shape{5120, 17408}), qwen.end());
  const std::vector<Shape> deepseek = shapes_from_argument("deepseek_v3");
  EXPECT_NE(std::find(deepseek.begin(), deepseek.end(), Shape{1536, 7168}), deepseek.end());
  EXPECT_NE(shapes_from_argument("edges").size(), 0u);
}

TEST(ShapesFromArgument, AMissingFileIsNamed) {
  EXPECT_NE(usage_error_of([] { shapes_from_argument("no_such_file"); }).find("no_such_file"),
            std::string::npos);
}

TEST(Expand, ColdUpToSixteenRowsUnlessTold) {
  Selection s;
  s.ops = {"int8_gemm"};
  s.shapes = {{64, 128}};
  s.rows = {16, 17};
  s.threads = {1, 2};
  EXPECT_EQ(names(expand(s)),
            (std::vector<std::string>{
                "int8_gemm/m:16/n:64/k:128/thr:1/cold:1", "int8_gemm/m:16/n:64/k:128/thr:2/cold:1",
                "int8_gemm/m:17/n:64/k:128/thr:1", "int8_gemm/m:17/n:64/k:128/thr:2"}));
  s.cold = ColdMode::kHot;
  for (const Problem& p : expand(s)) EXPECT_FALSE(p.cold);
  s.cold = ColdMode::kCold;
  for (const Problem& p : expand(s)) EXPECT_TRUE(p.cold);
}

TEST(Expand, QuantizeRowsOncePerDepth) {
  Selection s;
  s.ops = {"quantize_rows"};
  s.shapes = {{64, 128}, {32, 128}, {32, 256}};
  s.rows = {256};
  EXPECT_EQ(names(expand(s)), (std::vector<std::string>{"quantize_rows/m:256/k:128/thr:1",
                                                        "quantize_rows/m:256/k:256/thr:1"}));
}

TEST(ParseProblems, ABatchIsWrittenOutAndHasNoEpilogue) {
  EXPECT_EQ(names(parse_problems({"bmm/b:2/m:1/n:3/k:4/w:s8"}, 1)),
            (std::vector<std::string>{"bmm/b:2/m:1/n:3/k:4/w:s8/thr:1"}));
  for (const char* text : {"bmm/m:1/n:3/k:4", "bmm/b:2/m:1/n:3/k:4/epi:bias",
                           "bmm/b:2/m:1/n:3/k:4/a:f32", "bmm/b:2/m:1/n:3/k:4/g:2"}) {
    EXPECT_NE(usage_error_of([text] { parse_problems({text}, 1); }), "") << text;
  }
}

TEST(Expand, Fp8HasSquareBlocks) {
  Selection s;
  s.ops = {"fp8_gemm"};
  s.shapes = {{64, 256}};
  s.rows = {64};
  EXPECT_EQ(names(expand(s)),
            (std::vector<std::string>{"fp8_gemm/m:64/n:64/k:256/bn:128/bk:128/thr:1"}));
}

TEST(Expand, Int4HasAGroupAndBothKindsOfActivations) {
  Selection s;
  s.ops = {"int4_gemm"};
  s.shapes = {{64, 256}};
  s.rows = {64};
  EXPECT_EQ(names(expand(s)), (std::vector<std::string>{"int4_gemm/m:64/n:64/k:256/g:128/thr:1"}));
  s.group = 0;
  s.activations = Int8Activations::kBF16;
  EXPECT_EQ(names(expand(s)),
            (std::vector<std::string>{"int4_gemm/m:64/n:64/k:256/act:bf16/thr:1"}));
}

TEST(Expand, TheLevelIsPartOfTheName) {
  Selection s;
  s.ops = {"bf16_gemm"};
  s.shapes = {{64, 128}};
  s.rows = {64};
  s.isa = IsaLevel::kAvx512;
  EXPECT_EQ(names(expand(s)),
            (std::vector<std::string>{"bf16_gemm/m:64/n:64/k:128/isa:avx512/thr:1"}));
}

TEST(Quick, CoversEveryOpAndRegime) {
  const std::vector<Problem> quick = quick_problems(2, IsaLevel::kAvx512);
  EXPECT_LE(quick.size(), 16u);
  for (const char* op : {"int8_gemm", "bf16_gemm", "quantize_rows"}) {
    EXPECT_TRUE(std::any_of(quick.begin(), quick.end(), [&](const Problem& p) {
      return p.op == op;
    })) << op;
  }
  for (int64_t m : {1, 4, 16, 64, 256}) {
    EXPECT_TRUE(std::any_of(quick.begin(), quick.end(), [&](const Problem& p) { return p.m == m; }))
        << m;
  }
}

TEST(ParseProblems, FillsInWhatIsLeftOutOnly) {
  EXPECT_EQ(names(parse_problems({"int8_gemm/m:1/n:2/k:3", "int8_gemm/m:1/n:2/k:3/thr:1",
                                  "int8_gemm/m:1/n:2/k:3/isa:amx"},
                                 2)),
            (std::vector<std::string>{"int8_gemm/m:1/n:2/k:3/thr:2", "int8_gemm/m:1/n:2/k:3/thr:1",
                                      "int8_gemm/m:1/n:2/k:3/isa:amx/thr:2"}));
}

TEST(ParseProblems, FieldsThatTheOpWouldIgnoreAreRefused) {
  for (const char* text :
       {"quantize_rows/m:1/n:2/k:3", "quantize_rows/m:1/k:3/c:f32",
        "quantize_rows/m:1/k:3/epi:bias", "int8_gemm/m:1/n:2/k:3/g:4", "bf16_gemm/m:1/n:2/k:3/g:4",
        "bf16_gemm/m:1/n:2/k:3/a:f32", "bf16_gemm/m:1/n:2/k:3/thr:1025"}) {
    EXPECT_NE(usage_error_of([&] { parse_problems({text}, 1); }), "") << text;
  }
}

/// A field left out reads as 0, and a GEMM of depth 0 was timed without a word.
TEST(ParseProblems, DimensionsMustBeWrittenOut) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {{"int8_gemm/m:1/n:2", "k is missing"},
               {"int8_gemm/m:1/k:2/isa:avx512", "n is missing"},
               {"bf16_gemm/n:1/k:2", "m is missing"},
               {"quantize_rows/m:1", "k is missing"},
               {"quantize_rows/k:1", "m is missing"}};
  for (const auto& c : cases) {
    const std::string error = usage_error_of([&] { parse_problems({c.text}, 1); });
    EXPECT_NE(error.find(c.says), std::string::npos) << c.text << ": " << error;
  }
  EXPECT_EQ(names(parse_problems({"int8_gemm/m:0/n:2/k:0"}, 1)),
            std::vector<std::string>{"int8_gemm/m:0/n:2/k:0/thr:1"});
}

TEST(ParseProblems, APrintedNameCanBePastedWithZerosToo) {
  for (const std::string text :
       {"quantize_rows/m:0/k:0/thr:1", "quantize_rows/m:3/k:0/thr:1", "int8_gemm/m:0/n:2/k:3/thr:1",
        "int8_gemm/m:1/n:0/k:0/thr:1", "bf16_gemm/m:0/n:0/k:0/thr:1", "bmm/b:0/m:1/n:2/k:3/thr:1",
        "bmm/b:1/m:0/n:2/k:0/thr:1", "bmm/b:0/m:0/n:0/k:0/thr:1"}) {
    const std::vector<std::string> printed = names(parse_problems({text}, 1));
    EXPECT_EQ(printed, std::vector<std::string>{text});
    EXPECT_EQ(names(parse_problems(printed, 1)), printed);
  }
}

TEST(ParseProblems, AutoIsTheSameAsLeavingTheLevelOut) {
  EXPECT_EQ(
      names(parse_problems(
          {"int8_gemm/m:1/n:2/k:3/isa:auto/thr:4", "int8_gemm/m:1/n:2/k:3/isa:auto"}, 2)),
      (std::vector<std::string>{"int8_gemm/m:1/n:2/k:3/thr:4", "int8_gemm/m:1/n:2/k:3/thr:2"}));
  for (const char* text : {"int8_gemm/m:1/n:2/k:3/isa:none", "int8_gemm/m:1/n:2/k:3/isa:autox",
                           "int8_gemm/m:1/n:2/k:3/isa:auto/isa:auto", "int8_gemm/isa:none/thr:1"}) {
    const std::string error = usage_error_of([&] { parse_problems({text}, 1); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
}

TEST(ParseProblems, QuotesTheOneThatIsWrong) {
  const std::string error = usage_error_of([] { parse_problems({"int8_gemm/m:1/q:2"}, 1); });
  EXPECT_NE(error.find("int8_gemm/m:1/q:2"), std::string::npos) << error;
  const size_t place = error.find("at byte 14");  // once
  EXPECT_NE(place, std::string::npos) << error;
  EXPECT_EQ(error.find("at byte", place + 1), std::string::npos) << error;
}

}  // namespace
}  // namespace quern::bench
