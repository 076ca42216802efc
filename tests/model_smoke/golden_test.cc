// Whole models against what an independent implementation computed: per layer, per state, logits
// and greedy tokens, in both backends, and the same bits for any number of threads.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model_smoke/checkpoint.h"
#include "model_smoke/goldens.h"
#include "model_smoke/session.h"
#include "model_smoke/verify_run.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

/// A model by name: the ones in the tree are always there, the others when ../shared is.
std::string model_path(const std::string& name) {
  const std::string root = quern::test::source_dir();
  const std::string in_tree = root + "/model_smoke/checkpoints/" + name;
  if (std::filesystem::exists(in_tree)) return in_tree;
  const std::string trained = root + "/../shared/checkpoints/" + name;
  if (std::filesystem::exists(trained)) return trained;
  return root + "/../shared/goldens/public/" + name;
}

CommonOptions options_for(const std::string& path, const std::string& backend,
                          const std::string& act, int threads) {
  CommonOptions options;
  options.model = path;
  options.backend = backend;
  options.act = act;
  options.threads = threads;
  return options;
}

struct Case {
  const char* model;
  const char* backend;
  const char* act;  ///< empty: the default
  const char* kv_cache = "auto";
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.model) + "_" + info.param.backend;
  if (*info.param.act != '\0') name += std::string("_") + info.param.act;
  if (std::string(info.param.kv_cache) != "auto") name += std::string("_kv_") + info.param.kv_cache;
  for (char& c : name) {
    if (c == '.') c = '_';
  }
  return name;
}

class GoldenModels : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    path_ = model_path(GetParam().model);
    if (!std::filesystem::exists(path_)) {
      GTEST_SKIP() << path_ << " is not there: ../shared is no part of the tree";
    }
    if (std::string(GetParam().backend) == "jit" && Context().isa() == IsaLevel::kNone) {
      GTEST_SKIP() << "no kernel runs on this CPU: it has no AVX-512";
    }
  }
  CommonOptions options(int threads) const {
    CommonOptions o = options_for(path_, GetParam().backend, GetParam().act, threads);
    o.kv_cache = GetParam().kv_cache;
    return o;
  }
  std::string path_;
};

class GoldenLogits : public GoldenModels {};

TEST_P(GoldenLogits, HoldsItsRowWithTheSameBitsForOneAndTwoThreads) {
  std::vector<VerifyResult> results;
  for (const int threads : {1, 2}) {
    Session session(options(threads));
    const Goldens goldens = Goldens::load(session.dir(), "", session.config().vocab_size);
    const Tolerance tolerance = choose_tolerance(goldens, session.model().mode());
    results.push_back(run_goldens(session.model(), goldens, tolerance));
    const VerifyResult& r = results.back();
    for (size_t i = 0; i < r.prompts.size(); ++i) {
      for (const std::string& text : violations(r.prompts[i], tolerance)) {
        ADD_FAILURE() << "prompt " << i << ": " << text;
      }
    }
    for (const std::string& text : violations(r.golden, tolerance)) ADD_FAILURE() << text;
    for (const std::string& text : violations(r.stepwise, tolerance)) {
      ADD_FAILURE() << "prefill against token by token: " << text;
    }
  }
  ASSERT_EQ(results[0].prompts.size(), results[1].prompts.size());
  for (size_t i = 0; i < results[0].prompts.size(); ++i) {
    const Tensor& one = results[0].prompts[i].logits;
    const Tensor& two = results[1].prompts[i].logits;
    EXPECT_EQ(std::memcmp(one.row<float>(0), two.row<float>(0),
                          static_cast<size_t>(one.rows() * one.cols()) * sizeof(float)),
              0)
        << "prompt " << i << ": one and two threads differ";
    EXPECT_EQ(results[0].prompts[i].greedy, results[1].prompts[i].greedy);
  }
}

INSTANTIATE_TEST_SUITE_P(InTree, GoldenLogits,
                         testing::Values(Case{"qwen35_docs", "reference", ""},
                                         Case{"qwen35_docs", "jit", ""},
                                         Case{"qwen35_docs.w8a8_int8", "reference", ""},
                                         Case{"qwen35_docs.w8a8_int8", "jit", ""},
                                         Case{"qwen35_docs.w8a8_int8", "jit", "bf16"},
                                         Case{"qwen35_docs.gptq_g128", "reference", ""},
                                         Case{"qwen35_docs.gptq_g128", "jit", "bf16"},
                                         Case{"qwen35_docs.gptq_g128", "jit", "int8"},
                                         Case{"qwen35_docs.nvfp4_all", "reference", ""},
                                         Case{"qwen35_docs.nvfp4_all", "reference", "", "bf16"},
                                         Case{"qwen35_docs.nvfp4_all", "reference", "bf16"},
                                         Case{"qwen35_docs.nvfp4_all", "jit", ""},
                                         Case{"qwen35_docs.nvfp4_all", "jit", "", "bf16"}),
                         case_name);

// NVFP4 checkpoints declare an FP8 cache: "auto" is against logits_kvq_f32, "bf16" without.
INSTANTIATE_TEST_SUITE_P(SharedFloat, GoldenLogits,
                         testing::Values(Case{"qwen35_dense.fp8_block", "reference", ""},
                                         Case{"qwen35_dense.fp8_block", "reference", "bf16"},
                                         Case{"qwen35_dense.fp8_block", "jit", ""},
                                         Case{"qwen35_dense.nvfp4_mlp", "reference", ""},
                                         Case{"qwen35_dense.nvfp4_mlp", "reference", "", "bf16"},
                                         Case{"qwen35_dense.nvfp4_mlp", "reference", "bf16"},
                                         Case{"qwen35_dense.nvfp4_mlp", "jit", ""},
                                         Case{"qwen35_dense.nvfp4_mlp", "jit", "", "bf16"},
                                         Case{"qwen35_dense.nvfp4_all", "reference", ""},
                                         Case{"qwen35_dense.nvfp4_all", "reference", "", "bf16"},
                                         Case{"qwen35_dense.nvfp4_all", "reference", "bf16"},
                                         Case{"qwen35_dense.nvfp4_all", "jit", ""},
                                         Case{"qwen35_dense.nvfp4_all", "jit", "", "bf16"},
                                         Case{"qwen35_docs.fp8_block", "reference", ""},
                                         Case{"qwen35_docs.fp8_block", "reference", "bf16"},
                                         Case{"qwen35_docs.fp8_block", "jit", ""}),
                         case_name);

INSTANTIATE_TEST_SUITE_P(
    Shared, GoldenLogits,
    testing::Values(
        Case{"qwen35_dense", "reference", ""}, Case{"qwen35_dense", "jit", ""},
        Case{"qwen35_dense", "reference", "bf16"}, Case{"qwen35_dense_odd", "reference", ""},
        Case{"qwen35_dense_odd", "jit", ""}, Case{"qwen35_vl", "reference", ""},
        Case{"qwen35_vl", "jit", ""}, Case{"qwen35_dense.w8a8_int8", "reference", ""},
        Case{"qwen35_dense.w8a8_int8", "reference", "int8"},
        Case{"qwen35_dense.w8a8_int8", "jit", ""}, Case{"qwen35_dense.w8a8_int8", "jit", "bf16"},
        Case{"qwen35_dense.ct_int8", "reference", ""}, Case{"qwen35_dense.ct_int8", "jit", ""},
        Case{"qwen35_dense.gptq_g128", "reference", ""},
        Case{"qwen35_dense.gptq_g128", "jit", "bf16"},
        Case{"qwen35_dense.gptq_g128", "jit", "int8"},
        Case{"qwen35_dense.gptq_g32", "reference", ""},
        Case{"qwen35_dense.gptq_g32", "jit", "bf16"}, Case{"qwen35_dense.gptq_g32", "jit", "int8"},
        Case{"qwen35_dense.gptq_act", "reference", ""},
        Case{"qwen35_dense.gptq_act", "reference", "int8"},
        Case{"qwen35_dense.gptq_act", "jit", "bf16"}, Case{"qwen35_dense.gptq_act", "jit", "int8"},
        Case{"qwen35_dense.awq", "reference", ""}, Case{"qwen35_dense.awq", "jit", "bf16"},
        Case{"qwen35_dense.awq", "jit", "int8"}, Case{"qwen35_docs.awq", "jit", "bf16"},
        Case{"qwen35_docs.awq", "jit", "int8"}),
    case_name);

/// The tensors of a golden file that Goldens does not keep.
class RawGoldens {
 public:
  explicit RawGoldens(const ModelDir& dir) : file_(dir.open("goldens.safetensors")) {}
  const TensorView* find(const std::string& name) const { return file_.find(name); }
  std::vector<float> numbers(const std::string& name) const { return to_f32(*find(name)); }
  int64_t hidden_prompt() const {
    int64_t index = 0;
    std::memcpy(&index, find("hidden.prompt")->data, sizeof(index));
    return index;
  }

 private:
  SafetensorsFile file_;
};

double relative(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    error += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(error / norm);
}

std::vector<float> as_floats(MatrixView m) {
  std::vector<float> out;
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) {
      const int64_t at = r * m.row_stride + c;
      out.push_back(m.dtype == DType::kF32 ? static_cast<const float*>(m.data)[at]
                                           : static_cast<const bfloat16*>(m.data)[at].to_float());
    }
  }
  return out;
}

void compare_states(const RawGoldens& raw, const ModelCache& cache, const ModelConfig& config,
                    double tolerance) {
  const int64_t dk = config.linear_key_head_dim, dv = config.linear_value_head_dim;
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    const std::string at = "state.layer" + std::to_string(i) + ".";
    if (raw.find(at + "recurrent") == nullptr) continue;
    const LayerCache& layer = cache.layers[i];
    std::vector<float> recurrent;
    for (int64_t row = 0; row < config.linear_num_value_heads * dk; ++row) {
      const float* s = layer.delta.data.data() + row * layer.delta.stride;
      recurrent.insert(recurrent.end(), s, s + dv);
    }
    EXPECT_LE(relative(recurrent, raw.numbers(at + "recurrent")), tolerance) << at << "recurrent";
    // The golden keeps four inputs of each channel, of which the oldest is never read again.
    const std::vector<float> conv = raw.numbers(at + "conv");
    std::vector<float> expected, actual;
    for (int64_t c = 0; c < config.linear_conv_channels(); ++c) {
      for (int64_t j = 0; j < 3; ++j) {
        expected.push_back(conv[static_cast<size_t>(c * 4 + 1 + j)]);
        actual.push_back(layer.conv.rows[static_cast<size_t>(j * layer.conv.stride + c)]);
      }
    }
    EXPECT_LE(relative(actual, expected), tolerance) << at << "conv";
  }
}

class GoldenLayers : public GoldenModels {};

TEST_P(GoldenLayers, HiddenStatesAndCaches) {
  Session session(options(2));
  const Goldens goldens = Goldens::load(session.dir(), "", session.config().vocab_size);
  const RawGoldens raw(session.dir());
  const GoldenPrompt& prompt = goldens.prompts()[static_cast<size_t>(raw.hidden_prompt())];
  const bool exact = session.model().mode().act == ActMode::kF32;
  // f32 against f32 in another order of sums: 1e-4 over four layers. bf16: the row of the logits.
  const double tolerance = exact ? 1e-4 : goldens.family() == "trained" ? 0.01 : 0.04;
  std::map<std::string, std::vector<float>> seen;
  ForwardOptions forward;
  forward.observer = [&](std::string_view name, MatrixView value) {
    seen[std::string(name)] = as_floats(value);
  };
  ModelCache cache = session.model().make_cache();
  Tensor logits;
  session.model().forward({prompt.ids.data(), prompt.ids.size()}, cache, forward, logits);
  ASSERT_EQ(seen.size(), session.config().layer_types.size() + 2);
  for (const auto& [name, value] : seen) {
    ASSERT_NE(raw.find("hidden." + name), nullptr) << name;
    const std::vector<float> expected = raw.numbers("hidden." + name);
    ASSERT_EQ(value.size(), expected.size()) << name;
    EXPECT_LE(relative(value, expected), tolerance) << name;
  }
  compare_states(raw, cache, session.config(), tolerance);
}

INSTANTIATE_TEST_SUITE_P(InTree, GoldenLayers,
                         testing::Values(Case{"qwen35_docs", "reference", ""},
                                         Case{"qwen35_docs", "jit", ""}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shared, GoldenLayers,
                         testing::Values(Case{"qwen35_dense", "reference", ""},
                                         Case{"qwen35_dense", "jit", ""}),
                         case_name);

/// Bug log L15: the same run again gives the same bits.
TEST(GoldenModel, ThreeRunsAreIdentical) {
  Session session(options_for(model_path("qwen35_docs"), "reference", "", 2));
  std::vector<float> first;
  const std::vector<int32_t> ids = {5, 17, 900, 3, 3};
  for (int run = 0; run < 3; ++run) {
    ModelCache cache = session.model().make_cache();
    Tensor logits;
    session.model().forward(ids, cache, {}, logits);
    std::vector<float> bits(logits.row<float>(0),
                            logits.row<float>(0) + logits.rows() * logits.cols());
    if (run == 0) first = bits;
    EXPECT_EQ(bits, first) << "run " << run;
  }
}

/// Inputs longer than a block are cut; the cut changes no more than the order of f32 sums.
TEST(GoldenModel, BlocksContinueEachOther) {
  Session session(options_for(model_path("qwen35_docs"), "reference", "", 2));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < Qwen3_5::kPrefillBlock + 3; ++i) ids.push_back((i * 37) % 1024);
  ModelCache whole = session.model().make_cache(), parts = session.model().make_cache();
  Tensor expected, logits;
  session.model().forward(ids, whole, {.last_only = true}, expected);
  session.model().forward({ids.data(), 200}, parts, {.last_only = true}, logits);
  session.model().forward({ids.data() + 200, ids.size() - 200}, parts, {.last_only = true}, logits);
  EXPECT_EQ(parts.length, whole.length);
  LogitStats stats;
  stats.add(expected.row<float>(0), logits.row<float>(0), 1, 1024);
  EXPECT_LE(stats.max_abs(), 1e-3);
}

/// The form of the delta rule is a choice of order, not of result.
TEST(GoldenModel, BothDeltaFormsAgree) {
  Session session(options_for(model_path("qwen35_docs"), "reference", "", 2));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 70; ++i) ids.push_back((i * 11) % 1024);
  Tensor chunked, recurrent;
  for (const DeltaForm form : {DeltaForm::kChunked, DeltaForm::kRecurrent}) {
    ModelCache cache = session.model().make_cache();
    ForwardOptions forward;
    forward.delta = form;
    session.model().forward(ids, cache, forward, form == DeltaForm::kChunked ? chunked : recurrent);
  }
  LogitStats stats;
  stats.add(chunked.row<float>(0), recurrent.row<float>(0), 70, 1024);
  EXPECT_LE(stats.max_abs(), 1e-3);
}

}  // namespace
}  // namespace quern::smoke
