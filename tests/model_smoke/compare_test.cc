// compare: right kernels pass, and one broken op is named, whichever op it is.

#include "model_smoke/compare_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "model_smoke/linear_ops.h"
#include "model_smoke/session.h"
#include "tests/model_smoke/breaking_ops.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/smoke_binary.h"
#include "tests/model_smoke/test_model.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::BreakingOps;
using test::TempDir;
using test::TestModel;

constexpr int64_t kSteps = 2;

/// A model that keeps its sources, loaded for the generated kernels.
class Loaded {
 public:
  explicit Loaded(const std::string& path, const std::string& act = "", int threads = 2)
      : session_(options(path, act, threads), Session::Purpose::kCompare) {}

  static CommonOptions options(const std::string& path, const std::string& act, int threads) {
    CommonOptions o;
    o.model = path;
    o.act = act;
    o.threads = threads;
    return o;
  }

  Session& session() { return session_; }
  Qwen3_5& model() { return session_.model(); }

  /// Runs `tokens` prompt tokens and kSteps more; records that differ go to `differing`.
  CompareResult run(ModelOps& ops, int64_t tokens, std::vector<OpRecord>* differing = nullptr) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>((i * 37 + 11) % model().config().vocab_size));
    }
    return compare_ops(model(), ops, session_.runtime().context().pool(), ids, kSteps,
                       [&](const OpRecord& r) {
                         if (differing != nullptr && r.comparison.verdict() == Verdict::kDiffers) {
                           differing->push_back(r);
                         }
                       });
  }
  CompareResult run(int64_t tokens) { return run(model().direct_ops(), tokens); }

 private:
  Session session_;
};

class Compare : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::jit_runs()) GTEST_SKIP() << "no kernel runs on this CPU: it has no AVX-512";
  }

  static void expect_holds(const std::string& path, const std::string& act, int64_t tokens) {
    SCOPED_TRACE(path + " " + act + " " + std::to_string(tokens));
    Loaded loaded(path, act);
    const CompareResult r = loaded.run(tokens);
    EXPECT_TRUE(r.holds()) << (r.holds() ? "" : divergence_text(*r.first_divergence));
    EXPECT_GT(r.records, 0);
    EXPECT_EQ(r.generated.size(), static_cast<size_t>(kSteps));
  }
  static void expect_holds(const TestModel& model, const std::string& act, int64_t tokens) {
    const TempDir dir;
    model.write(dir);
    expect_holds(dir.path(), act, tokens);
  }
};

TEST_F(Compare, RightKernelsHold) {
  for (const int64_t tokens : {1, 5, 70}) {  // 70: more than one chunk of the delta rule
    expect_holds(test::tiny_model(), "bf16", tokens);
    expect_holds(test::tiny_int8_model(), "int8", tokens);
    expect_holds(test::tiny_int8_model(), "bf16", tokens);
  }
  expect_holds(test::with_biases(test::tiny_model()), "bf16", 9);
  expect_holds(test::with_biases(test::tiny_int8_model()), "int8", 9);
  expect_holds(test::mixed_model("mlp.up_proj"), "int8", 9);
  expect_holds(test::mixed_model("self_attn.k_proj"), "int8", 9);
}

TEST_F(Compare, PromptsOfSeveralBlocksHold) {
  TestModel model = test::tiny_model();
  model.config["max_position_embeddings"] = 4096;
  expect_holds(model, "bf16", Qwen3_5::kPrefillBlock + 3);
}

TEST_F(Compare, TrainedCheckpointsHold) {
  const std::string root = quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs";
  expect_holds(root, "", 33);
  expect_holds(root + ".w8a8_int8", "", 33);
  expect_holds(root + ".w8a8_int8", "bf16", 3);
}

TEST_F(Compare, SharedCheckpointsHold) {
  const std::string root = quern::test::source_dir() + "/../shared/goldens/public/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is no part of the tree";
  for (const char* name : {"qwen35_dense_odd", "qwen35_vl", "qwen35_dense.ct_int8"}) {
    expect_holds(root + name, "", 17);
  }
}

/// A forward pass runs every op; none is left out of the comparison.
TEST_F(Compare, EveryOpIsSeen) {
  const TempDir dir;
  test::mixed_model("mlp.up_proj").write(dir);
  Loaded loaded(dir.path());
  const CompareResult r = loaded.run(5);
  // Layer 0 is a delta net, layer 1 attention; 1 prefill and kSteps decode calls.
  const std::map<std::string, int64_t> expected = {{"embed", 1},
                                                   {"rms_norm", 7},
                                                   {"rope", 2},
                                                   {"append_kv", 1},
                                                   {"attention", 1},
                                                   {"conv1d_silu", 1},
                                                   {"conv1d_silu state", 1},
                                                   {"delta_gates g", 1},
                                                   {"delta_gates beta", 1},
                                                   {"delta_rule", 1},
                                                   {"delta_rule state", 1},
                                                   {"gated_rms_norm", 1},
                                                   {"silu_mul", 2},
                                                   {"int8_gemm", 4},
                                                   {"int8_gemm+residual", 4},
                                                   {"bf16_gemm", 4}};
  std::map<std::string, int64_t> seen;
  for (const auto& [op, totals] : r.by_op) seen[op] = totals.calls / (1 + kSteps);
  EXPECT_EQ(seen, expected);
}

TEST_F(Compare, TheResultDoesNotDependOnThreads) {
  const TempDir dir;
  test::tiny_int8_model().write(dir);
  Loaded one(dir.path(), "", 1), three(dir.path(), "", 3);
  const CompareResult a = one.run(20), b = three.run(20);
  ASSERT_EQ(a.by_op.size(), b.by_op.size());
  for (const auto& [op, totals] : a.by_op) {
    EXPECT_EQ(totals.comparison.unequal, b.by_op.at(op).comparison.unequal) << op;
    EXPECT_EQ(totals.comparison.worst.got, b.by_op.at(op).comparison.worst.got) << op;
  }
  EXPECT_EQ(a.generated, b.generated);
}

/// The inputs of every op, and so the tokens, are those of an ordinary run.
TEST_F(Compare, WatchingChangesNothing) {
  const TempDir dir;
  test::tiny_int8_model().write(dir);
  Loaded loaded(dir.path());
  const CompareResult r = loaded.run(20);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 20; ++i) ids.push_back((i * 37 + 11) % 260);
  ModelCache cache = loaded.model().make_cache();
  Tensor logits;
  loaded.model().forward(ids, cache, {.last_only = true}, logits);
  const float* row = logits.row<float>(0);
  EXPECT_EQ(r.generated[0], std::max_element(row, row + 260) - row);
}

/// FP8 and NVFP4 modules with an FP8 cache; a flipped bit of a byte in the cache is named.
TEST_F(Compare, FloatFormatsAndAnFp8Cache) {
  for (const test::FloatFile file : {test::FloatFile::kFp8Block, test::FloatFile::kFp8,
                                     test::FloatFile::kBothNvfp4, test::FloatFile::kCtNvfp4}) {
    const bool blocks = file == test::FloatFile::kFp8Block;
    TestModel model = test::tiny_float_model(
        {.file = file, .block_n = blocks ? 24 : 1, .block_k = blocks ? 10 : -1, .uniform = true});
    test::add_kv_scales(model, 0.013f, 0.007f);
    model.config["quantization_config"]["kv_cache_scheme"] = "FP8";
    if (file == test::FloatFile::kBothNvfp4) {
      test::Json nested = read_nested(model);
      nested["quantization"]["kv_cache_quant_algo"] = "FP8";
      write_nested(model, nested);
    }
    const TempDir dir;
    model.write(dir);
    for (const int64_t tokens : {1, 9, 33}) expect_holds(dir.path(), "", tokens);
    Loaded loaded(dir.path());
    EXPECT_TRUE(loaded.model().mode().fp8_kv);
    BreakingOps ops(loaded.model().direct_ops(), {"append_kv", 1, "self_attn"});
    std::vector<OpRecord> differing;
    (void)loaded.run(ops, 9, &differing);
    ASSERT_EQ(differing.size(), static_cast<size_t>(ops.hits())) << name_of(file);
    for (const OpRecord& record : differing) EXPECT_EQ(record.op, "append_kv");
  }
}

struct FaultCase {
  const char* name;
  BreakingOps::Fault fault;
  const char* op;  ///< what the record calls it
};

/// One that runs the op.
TestModel model_for(const std::string& op) {
  if (op == "silu_mul") return test::mixed_model("mlp.up_proj");
  if (op != "scale_columns") return test::tiny_model();
  TestModel awq = test::tiny_float_model({.file = test::FloatFile::kModelOptNvfp4});
  awq.config["quantization_config"]["quant_algo"] = "NVFP4_AWQ";
  awq.tensors.push_back(
      test::pre_quant_scale("model.layers.0.mlp.down_proj", std::vector<float>(24, 1.25f)));
  return awq;
}

class Faults : public Compare, public testing::WithParamInterface<FaultCase> {};

/// One flipped bit in one element, in prefill and in every decode step: exactly that op is named,
/// and nothing else differs, because the next op is judged by its actual inputs.
TEST_P(Faults, AreNamed) {
  const FaultCase& c = GetParam();
  const TempDir dir;
  model_for(c.fault.op).write(dir);
  Loaded loaded(dir.path());
  BreakingOps ops(loaded.model().direct_ops(), c.fault);
  std::vector<OpRecord> differing;
  const CompareResult r = loaded.run(ops, 9, &differing);
  EXPECT_EQ(ops.hits(), 1 + kSteps);
  ASSERT_TRUE(r.first_divergence.has_value());
  EXPECT_EQ(differing.size(), static_cast<size_t>(ops.hits()));
  for (const OpRecord& record : differing) {
    EXPECT_EQ(record.layer, c.fault.layer);
    EXPECT_EQ(record.op, c.op);
    EXPECT_EQ(record.output, c.fault.output);
    EXPECT_NE(record.module.find(c.fault.module), std::string::npos) << record.module;
    EXPECT_EQ(record.comparison.outside, 1);
    EXPECT_FALSE(record.kernel.empty());
  }
  EXPECT_EQ(r.first_divergence->first_token, 0);
  const std::string text = divergence_text(*r.first_divergence);
  for (const std::string& part :
       {std::string(c.op), r.first_divergence->kernel, r.first_divergence->module,
        std::string("got "), std::string("expected ")}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryOp, Faults,
    testing::Values(
        FaultCase{"embed", {"embed", -1, "embed_tokens"}, "embed"},
        FaultCase{"input_norm", {"rms_norm", 0, "input_layernorm"}, "rms_norm"},
        FaultCase{"post_norm", {"rms_norm", 1, "post_attention_layernorm"}, "rms_norm"},
        FaultCase{"q_norm", {"rms_norm", 1, "self_attn.q_norm"}, "rms_norm"},
        FaultCase{"k_norm", {"rms_norm", 1, "self_attn.k_norm"}, "rms_norm"},
        FaultCase{"final_norm", {"rms_norm", -1, "norm"}, "rms_norm"},
        FaultCase{"rope_q", {"rope", 1, "self_attn.q"}, "rope"},
        FaultCase{"rope_k", {"rope", 1, "self_attn.k"}, "rope"},
        FaultCase{"kv_cache", {"append_kv", 1, "self_attn"}, "append_kv"},
        FaultCase{"attention", {"attention", 1, "self_attn"}, "attention"},
        FaultCase{"conv", {"conv1d_silu", 0, "linear_attn.conv1d"}, "conv1d_silu"},
        FaultCase{"conv_state", {"conv1d_silu", 0, "linear_attn.conv1d", "state"}, "conv1d_silu"},
        FaultCase{"gate_g", {"delta_gates", 0, "linear_attn", "g"}, "delta_gates"},
        FaultCase{"gate_beta", {"delta_gates", 0, "linear_attn", "beta"}, "delta_gates"},
        FaultCase{"delta_rule", {"delta_rule", 0, "linear_attn"}, "delta_rule"},
        FaultCase{"delta_state", {"delta_rule", 0, "linear_attn", "state"}, "delta_rule"},
        FaultCase{"gated_norm", {"gated_rms_norm", 0, "linear_attn.norm"}, "gated_rms_norm"},
        FaultCase{"silu_mul", {"silu_mul", 0, "mlp"}, "silu_mul"},
        FaultCase{"pre_quant_scale", {"scale_columns", 0, "mlp"}, "scale_columns"},
        FaultCase{"qkvz", {"linear", 0, "in_proj_qkv"}, "bf16_gemm"},
        FaultCase{"ba", {"linear", 0, "in_proj_b"}, "bf16_gemm"},
        FaultCase{"delta_out", {"linear", 0, "linear_attn.out_proj"}, "bf16_gemm+residual"},
        FaultCase{"gate_up", {"linear", 1, "mlp.gate_proj"}, "bf16_gemm+silu_mul"},
        FaultCase{"down", {"linear", 1, "mlp.down_proj"}, "bf16_gemm+residual"},
        FaultCase{"qkv", {"linear", 1, "q_proj"}, "bf16_gemm"},
        FaultCase{"attention_out", {"linear", 1, "o_proj"}, "bf16_gemm+residual"},
        FaultCase{"lm_head", {"linear", -1, "lm_head"}, "bf16_gemm"}),
    [](const auto& test) { return std::string(test.param.name); });

/// The same over more than a chunk and on trained weights: the bounds do not grow until nothing is
/// outside of them.
TEST_F(Compare, LongPromptsHideNoBit) {
  const std::string path = quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs";
  Loaded loaded(path);
  for (const BreakingOps::Fault& fault :
       {BreakingOps::Fault{"delta_rule", 1, "linear_attn"},
        BreakingOps::Fault{"delta_rule", 1, "linear_attn", "state"},
        BreakingOps::Fault{"attention", 3, "self_attn"},
        BreakingOps::Fault{"linear", 2, "mlp.down"}}) {
    BreakingOps ops(loaded.model().direct_ops(), fault);
    std::vector<OpRecord> differing;
    loaded.run(ops, 100, &differing);
    EXPECT_EQ(differing.size(), static_cast<size_t>(ops.hits())) << fault.op << " " << fault.output;
    for (const OpRecord& r : differing) EXPECT_EQ(r.layer, fault.layer);
  }
}

/// Runs `wrong` in place of one op of the int8 model and returns what differs.
std::vector<OpRecord> run_wrong(
    const std::string& module, int64_t layer,
    const std::function<void(Loaded&, const LinearOp&, const LinearArgs&)>& wrong) {
  const TempDir dir;
  test::tiny_int8_model().write(dir);
  Loaded loaded(dir.path());
  BreakingOps ops(loaded.model().direct_ops(), {"linear", layer, module});
  ops.set_linear_fault(
      [&](const LinearOp& op, const LinearArgs& args) { wrong(loaded, op, args); });
  std::vector<OpRecord> differing;
  loaded.run(ops, 40, &differing);
  EXPECT_GT(ops.hits(), 0);
  EXPECT_FALSE(differing.empty());
  for (const OpRecord& r : differing) {
    EXPECT_EQ(r.layer, layer);
    EXPECT_NE(r.module.find(module), std::string::npos);
  }
  return differing;
}

/// Half a per mille on the scale of one column: that column is named.
TEST_F(Compare, AWrongScaleOfOneColumnIsNamed) {
  constexpr int64_t kColumn = 21;
  const auto differing =
      run_wrong("in_proj_qkv", 0, [](Loaded& loaded, const LinearOp& op, const LinearArgs& args) {
        LinearSource wrong = copy(*op.source());
        wrong.weights.scale[kColumn] *= 1.0005f;
        wrong.mode.keep_source = false;
        const auto broken = make_linear_op(loaded.session().runtime().context(), wrong.mode,
                                           std::move(wrong.weights), wrong.output);
        std::vector<std::byte> scratch(broken->scratch_bytes(args.a.rows));
        broken->run(args.a, args.c, {scratch.data(), scratch.size()});
      });
  for (const OpRecord& r : differing) {
    EXPECT_EQ(r.op, "int8_gemm");
    EXPECT_EQ(r.comparison.worst.col, kColumn);
    EXPECT_NE(r.kernel.find("quantize_rows"), std::string::npos) << r.kernel;
  }
}

TEST_F(Compare, AForgottenResidualIsNamed) {
  const auto differing =
      run_wrong("mlp.down_proj", 1, [](Loaded&, const LinearOp& op, const LinearArgs& args) {
        for (int64_t r = 0; r < args.c.rows; ++r) {
          bfloat16* row = static_cast<bfloat16*>(args.c.data) + r * args.c.row_stride;
          std::fill(row, row + args.c.cols, bfloat16{});
        }
        op.run(args.a, args.c, args.scratch);
      });
  for (const OpRecord& r : differing) EXPECT_EQ(r.op, "int8_gemm+residual");
}

/// One code of the quantized activations off by one, as a wrong rounding would have it.
TEST_F(Compare, AWrongQuantizationIsNamed) {
  run_wrong("mlp.gate_proj", 0, [](Loaded&, const LinearOp& op, const LinearArgs& args) {
    std::vector<bfloat16> a;
    for (int64_t r = 0; r < args.a.rows; ++r) {
      const bfloat16* row = static_cast<const bfloat16*>(args.a.data) + r * args.a.row_stride;
      a.insert(a.end(), row, row + args.a.cols);
    }
    // Halfway to the next code and a little more.
    float largest = 0;
    for (int64_t i = 0; i < args.a.cols; ++i)
      largest = std::max(largest, std::fabs(a[i].to_float()));
    a[0] = bfloat16::from_float(a[0].to_float() + largest / 127 * 0.75f);
    op.run(matrix_view(a.data(), args.a.rows, args.a.cols), args.c, args.scratch);
  });
}

TEST_F(Compare, AModelWithoutSourcesIsRefused) {
  const TempDir dir;
  test::tiny_model().write(dir);
  Session session(Loaded::options(dir.path(), "", 1));
  EXPECT_THROW(compare_ops(session.model(), session.model().direct_ops(),
                           session.runtime().context().pool(), {1, 2}, 0, [](const OpRecord&) {}),
               std::logic_error);
}

}  // namespace
}  // namespace quern::smoke
