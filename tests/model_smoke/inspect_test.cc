// inspect and compare as commands, and what both read out of a plan's explanation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "model_smoke/plan_text.h"
#include "model_smoke/reference_check/element_check.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/smoke_binary.h"
#include "tests/model_smoke/test_model.h"

namespace quern::smoke {
namespace {

using test::TempDir;

TEST(PlanText, TakesAnExplanationApart) {
  const PlanText plan = parse_plan_text(
      "int8_gemm/n:8/k:4\n"
      "  amx: refused: no AMX here: none at all\n"
      "  avx512: chosen\n"
      "  reference: refused: only on explicit request\n"
      "  kernel quantize_rows.avx512.bf16s8\n"
      "  kernel int8_gemm.avx512.s8u8bf16.mr1.nr4.pf1024.epi=none and its tails\n"
      "  kernel int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none and its tails\n"
      "  m 1..4: mr 1, nr 4, mc 6, kc all, prefetch 1024, kernel "
      "int8_gemm.avx512.s8u8bf16.mr1.nr4.pf1024.epi=none (compiled-in defaults)\n"
      "  m 5..: mr 6, nr 4, mc 6, kc 256, prefetch 0, kernel "
      "int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none (db)\n"
      "    tuning entry refused: mr 99 is too much\n");
  ASSERT_EQ(plan.candidates.size(), 3u);
  EXPECT_EQ(plan.candidates[0].family, "amx");
  EXPECT_EQ(plan.candidates[0].refused, "no AMX here: none at all");
  EXPECT_EQ(plan.family(), "avx512");
  EXPECT_EQ(plan.kernels.size(), 3u);
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].to, 4);
  EXPECT_EQ(plan.rows[1].to, INT64_MAX);
  EXPECT_EQ(plan.rows[1].blocking, "mr 6, nr 4, mc 6, kc 256, prefetch 0 (db)");
  EXPECT_EQ(plan.kernels_for(4),
            "quantize_rows.avx512.bf16s8 + int8_gemm.avx512.s8u8bf16.mr1.nr4.pf1024.epi=none");
  EXPECT_EQ(plan.kernels_for(5),
            "quantize_rows.avx512.bf16s8 + int8_gemm.avx512.s8u8bf16.mr6.nr4.pf0.epi=none");
  EXPECT_TRUE(parse_plan_text("").family().empty());
}

/// What a run says of itself is what its plans chose, on a machine with AMX too.
TEST(PlanText, FamiliesOfARunAreThoseThatWereChosen) {
  const PlanText decodes =
      parse_plan_text("int8_gemm/n:8/k:4\n  amx: refused: bf16 only\n  avx512: chosen\n");
  const PlanText by_rows =
      parse_plan_text("int8_gemm/n:8/k:4\n  amx: chosen\n  avx512: chosen for m 1..8\n");
  const PlanText nothing =
      parse_plan_text("int8_gemm/n:8/k:4\n  amx: refused: x\n  avx512: refused: y\n");
  EXPECT_EQ(by_rows.family(), "amx+avx512");
  EXPECT_EQ(families_of({decodes, decodes}), "avx512");
  EXPECT_EQ(families_of({nothing, decodes, by_rows}), "amx+avx512");
  EXPECT_EQ(families_of({nothing}), "none");
  EXPECT_EQ(families_of({}), "none");
}

/// 2^-8 is half a unit in the last place of bf16 above 1.
TEST(ElementCheck, TheBoundDecidesWhereAnElementMayRound) {
  const auto verdict = [](double got, double value, double bound) {
    ElementCheck check(DType::kBF16);
    check.add(0, 0, got, {value, bound});
    return check.result().verdict();
  };
  constexpr double kTie = 1 + 0x1p-8, kNext = 1 + 0x1p-7;
  EXPECT_EQ(verdict(1, 1, 0), Verdict::kEqual);
  EXPECT_EQ(verdict(kNext, 1, 0), Verdict::kDiffers);
  EXPECT_EQ(verdict(kNext, 1, 0x1p-9), Verdict::kDiffers);  // does not reach the tie
  EXPECT_EQ(verdict(kNext, kTie - 0x1p-20, 0x1p-21), Verdict::kDiffers);
  EXPECT_EQ(verdict(kNext, kTie - 0x1p-20, 0x1p-19), Verdict::kWithinBound);
  EXPECT_EQ(verdict(kNext + 0x1p-7, kTie - 0x1p-20, 0x1p-19), Verdict::kDiffers);
  EXPECT_EQ(verdict(-0.0, 0.0, 0), Verdict::kDiffers);  // bound 0: every bit counts
  EXPECT_EQ(verdict(NAN, 1, 1e9), Verdict::kDiffers);
  EXPECT_EQ(verdict(NAN, NAN, 0), Verdict::kEqual);
  EXPECT_EQ(verdict(1, NAN, 0), Verdict::kDiffers);
  EXPECT_EQ(verdict(5, 1, INFINITY), Verdict::kWithinBound);  // f32 may have overflowed
}

TEST(ElementCheck, TheWorstElementIsTheOneThatExceedsTheMost) {
  ElementCheck check(DType::kF32);
  check.add(0, 0, 1.0, {1.0, 0});
  check.add(0, 1, 1.5, {1.0, 1.0});  // half of its bound
  check.add(1, 0, 3.0, {1.0, 0.5});  // four times
  check.add(1, 1, 2.0, {1.0, 0.5});  // twice
  const Comparison& r = check.result();
  EXPECT_EQ(r.elements, 4);
  EXPECT_EQ(r.unequal, 3);
  EXPECT_EQ(r.outside, 2);
  EXPECT_EQ(r.worst.row, 1);
  EXPECT_EQ(r.worst.col, 0);
  EXPECT_EQ(r.worst.got, 3.0);
  EXPECT_EQ(r.worst.expected, 1.0);
}

using test::Outcome;
using test::smoke;

nlohmann::json json_of(const std::string& path) {
  return nlohmann::json::parse(test::read_file(path));
}

/// The bytes of all tensors, by the length of the header alone.
uint64_t tensor_bytes(const std::string& safetensors) {
  const std::string bytes = test::read_file(safetensors);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return bytes.size() - 8 - header;
}

TEST(CompareCommand, PassesAndWritesJson) {
  if (!test::jit_runs()) GTEST_SKIP() << "no kernel runs on this CPU: it has no AVX-512";
  const TempDir dir;
  for (const char* form : {"", ".w8a8_int8", ".nvfp4_all"}) {
    const std::string model = test::docs_model() + form;
    const Outcome o =
        smoke("compare " + model + " -p 'The following' -n 2 --json " + dir.file("j"));
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_NE(o.out.find("verdict: PASS"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("equal"), std::string::npos);
    const auto json = json_of(dir.file("j"));
    EXPECT_EQ(json.at("pass"), true);
    EXPECT_FALSE(json.contains("first_divergence"));
    EXPECT_EQ(json.at("decoded_ids").size(), 2u);
    for (const auto& op : json.at("ops")) {
      EXPECT_NE(op.at("verdict"), "DIFFERS");
      EXPECT_GT(op.at("elements"), 0);
      EXPECT_FALSE(op.at("kernel").get<std::string>().empty());
      if (op.at("op") == "int8_gemm") {
        EXPECT_EQ(op.at("verdict"), "equal");  // exact
      }
    }
  }
}

TEST(CompareCommand, SummaryLeavesOutTheLines) {
  if (!test::jit_runs()) GTEST_SKIP() << "no kernel runs on this CPU: it has no AVX-512";
  const Outcome lines = smoke("compare " + test::docs_model() + " --ids 1,2,3 -n 0");
  const Outcome summary = smoke("compare " + test::docs_model() + " --ids 1,2,3 -n 0 --summary");
  EXPECT_EQ(lines.code, 0) << lines.err;
  EXPECT_EQ(summary.code, 0) << summary.err;
  EXPECT_NE(lines.out.find("post_attention_layernorm"), std::string::npos);
  EXPECT_EQ(summary.out.find("post_attention_layernorm"), std::string::npos);
  EXPECT_NE(summary.out.find("rms_norm"), std::string::npos);
}

TEST(CompareCommand, UsageErrorsExitWithTwo) {
  for (const std::string& arguments :
       {"compare " + test::docs_model(), "compare " + test::docs_model() + " -p x --ids 1",
        "compare " + test::docs_model() + " -p x --backend reference",
        "compare " + test::docs_model() + " -p x --act f32",
        "compare " + test::docs_model() + " -p x -n -1",
        "compare " + test::docs_model() + " --ids 1 -n 5000",
        "compare " + test::docs_model() + " --ids 1 --json /nonexistent/x"}) {
    const Outcome o = smoke(arguments);
    EXPECT_EQ(o.code, 2) << arguments;
    EXPECT_TRUE(o.out.empty()) << arguments << ": " << o.out;
    EXPECT_FALSE(o.err.empty());
  }
  EXPECT_EQ(smoke("compare " + test::docs_model() + " --ids 1", "QUERN_MAX_ISA=none").code, 2);
}

/// Every byte of the files is in one module or skipped for a reason, with AVX-512 and without.
TEST(InspectCommand, AccountsForEveryByte) {
  const TempDir dir;
  for (const char* environment : {"", "QUERN_MAX_ISA=none", "QUERN_JIT=0"}) {
    test::TestModel model = test::mixed_model("mlp.up_proj");
    model.tensors.push_back({"model.visual.blocks.0.weight", "BF16", {3}, std::string(6, '\1')});
    model.write(dir);
    const Outcome o = smoke("inspect -m " + dir.path() + " --json " + dir.file("j"), environment);
    EXPECT_EQ(o.code, 0) << o.err;
    const auto json = json_of(dir.file("j"));
    uint64_t bytes = 0;
    for (const char* list : {"linear", "parameters"}) {
      for (const auto& m : json.at(list)) bytes += m.at("file_bytes").get<uint64_t>();
    }
    EXPECT_EQ(bytes, json.at("totals").at("file_bytes").get<uint64_t>());
    uint64_t skipped = 0;
    for (const auto& reason : json.at("totals").at("skipped")) {
      skipped += reason.at("bytes").get<uint64_t>();
    }
    EXPECT_EQ(skipped, 6u);
    EXPECT_EQ(bytes + skipped, tensor_bytes(dir.file("model.safetensors")));
    EXPECT_NE(o.out.find("vision tower"), std::string::npos) << o.out;
  }
}

/// The same of FP8 and NVFP4, with the scales of a cache used and left out.
TEST(InspectCommand, AccountsForEveryByteOfFloatFormats) {
  for (const test::FloatFile file : {test::FloatFile::kFp8Block, test::FloatFile::kCtFp8,
                                     test::FloatFile::kBothNvfp4, test::FloatFile::kCtNvfp4}) {
    const TempDir dir;
    const bool blocks = file == test::FloatFile::kFp8Block;
    test::TestModel model = test::tiny_float_model(
        {.file = file, .block_n = blocks ? 8 : -1, .block_k = blocks ? 8 : -1});
    test::add_kv_scales(model, 0.5f, 0.25f);
    model.write(dir);
    for (const bool fp8_cache : {false, true}) {
      const Outcome o = smoke("inspect -m " + dir.path() + " --json " + dir.file("j") +
                              (fp8_cache ? " --kv-cache fp8" : ""));
      EXPECT_EQ(o.code, 0) << o.err;
      const auto json = json_of(dir.file("j"));
      uint64_t bytes = 0;
      for (const char* list : {"linear", "parameters"}) {
        for (const auto& m : json.at(list)) bytes += m.at("file_bytes").get<uint64_t>();
      }
      EXPECT_EQ(bytes, json.at("totals").at("file_bytes").get<uint64_t>());
      for (const auto& reason : json.at("totals").at("skipped")) {
        bytes += reason.at("bytes").get<uint64_t>();
      }
      EXPECT_EQ(bytes, tensor_bytes(dir.file("model.safetensors"))) << name_of(file);
      for (const auto& m : json.at("linear")) {
        EXPECT_FALSE(m.at("decided").get<std::string>().empty()) << m.at("module");
      }
    }
  }
}

TEST(InspectCommand, SaysWhatIsFusedAndWhy) {
  const TempDir dir;
  test::mixed_model("mlp.up_proj").write(dir);
  EXPECT_EQ(smoke("inspect -m " + dir.path() + " --json " + dir.file("j")).code, 0);
  std::map<std::string, nlohmann::json> modules;
  const auto json = json_of(dir.file("j"));
  for (const auto& m : json.at("linear")) modules[m.at("module")] = m;
  const std::string at = "model.layers.0.";
  const auto& qkvz = modules.at(at + "linear_attn.in_proj_qkv+" + at + "linear_attn.in_proj_z");
  EXPECT_EQ(qkvz.at("format"), "I8, F32 scale per row");
  EXPECT_EQ(qkvz.at("shape"), (nlohmann::json{48, 16}));
  EXPECT_EQ(qkvz.at("file_bytes"), 48 * 16 + 48 * 4);
  EXPECT_EQ(qkvz.at("fused"), "one matrix: one input, one format");
  EXPECT_EQ(modules.at(at + "mlp.gate_proj").at("fused"),
            "gate and up apart: the gate is I8, F32 scale per row, up is BF16");
  EXPECT_EQ(modules.at(at + "mlp.down_proj").at("residual"), true);
  EXPECT_EQ(modules.at("lm_head").at("fused"), "alone: no other module reads its input");
  if (!test::jit_runs()) return;
  EXPECT_EQ(qkvz.at("no_kernel"), nullptr);
  EXPECT_EQ(qkvz.at("layout"), "u8.vnni4.n16.v2");
  EXPECT_GE(qkvz.at("packed_bytes"), 48 * 16 + 48 * 4);
  EXPECT_FALSE(qkvz.at("kernels").empty());
  EXPECT_FALSE(qkvz.at("blocking").empty());
  EXPECT_FALSE(qkvz.at("refused").empty());
  EXPECT_NE(qkvz.at("op").get<std::string>().find("int8_gemm"), std::string::npos);
}

TEST(InspectCommand, FusesGateAndUpOfOneFormat) {
  const TempDir dir;
  test::tiny_model().write(dir);
  const Outcome o = smoke("inspect -m " + dir.path());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("model.layers.0.mlp.gate_proj+model.layers.0.mlp.up_proj"),
            std::string::npos);
  EXPECT_NE(o.out.find("interleaved in one op, SiLU-mul in its epilogue"), std::string::npos);
}

TEST(InspectCommand, WithoutAKernelItSaysWhy) {
  for (const auto& [environment, told] :
       {std::pair("QUERN_MAX_ISA=none", "capped to none"), std::pair("QUERN_JIT=0", "QUERN_JIT")}) {
    // Taking the cap away would not help where the machine itself has no AVX-512.
    const char* const reason = test::jit_runs() ? told : "this machine has no usable AVX-512";
    const TempDir dir;
    const Outcome o =
        smoke("inspect " + test::docs_model() + " --json " + dir.file("j"), environment);
    EXPECT_EQ(o.code, 0) << o.err;
    const auto json = json_of(dir.file("j"));
    for (const auto& m : json.at("linear")) {
      ASSERT_TRUE(m.at("no_kernel").is_string());
      EXPECT_NE(m.at("no_kernel").get<std::string>().find(reason), std::string::npos) << m;
      EXPECT_EQ(m.at("packed_bytes"), 0);
      EXPECT_NE(m.at("op").get<std::string>().find("bf16_gemm"), std::string::npos) << m;
    }
    EXPECT_NE(o.out.find("kernel   none: "), std::string::npos);
  }
}

TEST(InspectCommand, TiedHeadsAreCountedOnce) {
  const TempDir dir;
  test::TestModel model = test::tiny_model();
  model.config["tie_word_embeddings"] = true;
  std::erase_if(model.tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
  model.write(dir);
  EXPECT_EQ(smoke("inspect -m " + dir.path() + " --json " + dir.file("j")).code, 0);
  EXPECT_EQ(json_of(dir.file("j")).at("totals").at("file_bytes").get<uint64_t>(),
            tensor_bytes(dir.file("model.safetensors")));
}

}  // namespace
}  // namespace quern::smoke
