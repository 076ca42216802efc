#include "model_smoke/model_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model_smoke/generation_config.h"
#include "model_smoke/input_error.h"
#include "tests/model_smoke/test_model.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::Json;
using test::TempDir;
using test::TestModel;

ModelConfig parse(const Json& config) {
  return parse_model_config(config, "config.json");
}

TEST(ModelConfig, ReadsTheSmallCheckpoint) {
  const ModelDir dir(quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs");
  const ModelConfig c = load_model_config(dir);
  EXPECT_EQ(c.architecture, "Qwen3_5ForCausalLM");
  EXPECT_EQ(c.vocab_size, 1024);
  EXPECT_EQ(c.hidden_size, 256);
  EXPECT_EQ(c.num_hidden_layers, 4);
  EXPECT_EQ(c.rotary_dim, 16);
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.rms_norm_eps, 1e-6f);
  EXPECT_EQ(c.linear_conv_channels(), 512);
  EXPECT_EQ(c.layer_types,
            (std::vector<LayerType>{LayerType::kLinearAttention, LayerType::kLinearAttention,
                                    LayerType::kLinearAttention, LayerType::kFullAttention}));
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(load_generation_config(dir, c).eos_token_ids, std::vector<int64_t>{0});
}

TEST(ModelConfig, NestedTextConfig) {
  Json outer = {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                {"tie_word_embeddings", true},
                {"vision_config", Json::object()},
                {"text_config", test::tiny_model().config}};
  outer["text_config"].erase("tie_word_embeddings");
  const ModelConfig c = parse(outer);
  EXPECT_EQ(c.hidden_size, 16);
  EXPECT_TRUE(c.tie_word_embeddings);
  outer["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(outer).tie_word_embeddings);
  outer.erase("tie_word_embeddings");
  EXPECT_TRUE(parse(outer).tie_word_embeddings);
  // Without architectures the model_type tells.
  outer.erase("architectures");
  outer["model_type"] = "qwen3_5";
  EXPECT_EQ(parse(outer).architecture, "Qwen3_5ForConditionalGeneration");
}

TEST(ModelConfig, RopeSpellings) {
  Json c = test::tiny_model().config;
  const Json rope = c["rope_parameters"];
  c.erase("rope_parameters");
  c["rope_scaling"] = rope;  // the old name
  c["rope_scaling"]["rope_theta"] = 5e5;
  EXPECT_EQ(parse(c).rope_theta, 5e5);
  c["rope_scaling"] = nullptr;
  c["rope_theta"] = 1e7;  // old files: top level
  EXPECT_EQ(parse(c).rope_theta, 1e7);
  c.erase("rope_theta");
  EXPECT_EQ(parse(c).rope_theta, 10000.0);
  // In both places it must be one number; the dictionary alone is enough.
  c["rope_parameters"] = {{"rope_theta", 123456}, {"partial_rotary_factor", 0.5}};
  c["rope_theta"] = 123456.0;
  c["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(parse(c).rope_theta, 123456.0);
  c.erase("rope_theta");
  c.erase("partial_rotary_factor");
  EXPECT_EQ(parse(c).rope_theta, 123456.0);
  EXPECT_EQ(parse(c).rotary_dim, 8);
  c["rope_parameters"].erase("partial_rotary_factor");  // default 0.25
  EXPECT_EQ(parse(c).rotary_dim, 4);
  c["partial_rotary_factor"] = 1;
  EXPECT_EQ(parse(c).rotary_dim, 16);
}

TEST(ModelConfig, LayerTypesFromTheInterval) {
  Json c = test::tiny_model().config;
  c.erase("layer_types");
  c["num_hidden_layers"] = 5;
  c["full_attention_interval"] = 3;
  const auto lin = LayerType::kLinearAttention;
  const auto full = LayerType::kFullAttention;
  EXPECT_EQ(parse(c).layer_types, (std::vector<LayerType>{lin, lin, full, lin, lin}));
  c.erase("full_attention_interval");
  EXPECT_EQ(parse(c).layer_types, (std::vector<LayerType>{lin, lin, lin, full, lin}));
}

// Bug log L14: one set of tensors, under either name, in either class.
TEST(ModelConfig, TextPrefixIsWhatTheFilesHold) {
  for (const bool nested : {false, true}) {
    TestModel m = test::tiny_model();
    if (nested) {
      for (test::TestTensor& t : m.tensors) {
        if (t.name.starts_with("model.")) t.name.insert(6, "language_model.");
      }
    }
    const TempDir dir;
    m.write(dir);
    const ModelDir model(dir.path());
    const Checkpoint c = Checkpoint::open(model);
    EXPECT_EQ(text_tensor_prefix(load_model_config(model), c),
              nested ? "model.language_model." : "model.");
  }
}

TEST(GenerationConfig, ListsFallbacksAndAbsence) {
  TestModel m = test::tiny_model();
  m.generation = {{"eos_token_id", {7, 9}}};
  m.config["eos_token_id"] = 3;
  m.config["bos_token_id"] = 2;
  const auto load = [](const TestModel& model) {
    const TempDir dir;
    model.write(dir);
    const ModelDir d(dir.path());
    return load_generation_config(d, load_model_config(d));
  };
  GenerationConfig g = load(m);
  EXPECT_EQ(g.eos_token_ids, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(g.bos_token_id, 2);
  EXPECT_TRUE(g.is_eos(9));
  EXPECT_FALSE(g.is_eos(3));
  m.absent.push_back("generation_config.json");
  g = load(m);
  EXPECT_EQ(g.eos_token_ids, std::vector<int64_t>{3});
  m.config["eos_token_id"] = nullptr;
  m.config["bos_token_id"] = nullptr;
  g = load(m);
  EXPECT_TRUE(g.eos_token_ids.empty());
  EXPECT_FALSE(g.bos_token_id.has_value());
}

// Every published form in the shared goldens, where the machine has them.
TEST(ModelConfig, SharedGoldens) {
  const std::string root = quern::test::source_dir() + "/../shared/goldens/public/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not on this machine";
  for (const char* name : {"qwen35_dense", "qwen35_dense_odd", "qwen35_vl", "qwen35_dense.ct_int8",
                           "qwen35_dense.w8a8_int8"}) {
    SCOPED_TRACE(name);
    const ModelDir dir(root + name);
    const ModelConfig c = load_model_config(dir);
    EXPECT_NO_THROW((void)load_generation_config(dir, c));
    EXPECT_EQ(c.tie_word_embeddings, std::string(name) == "qwen35_dense_odd");
  }
  for (const char* name : {"qwen35_moe", "dsv3"}) {
    EXPECT_THROW((void)load_model_config(ModelDir(root + name)), InputError) << name;
  }
}

}  // namespace
}  // namespace quern::smoke
