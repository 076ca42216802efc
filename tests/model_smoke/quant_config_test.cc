#include "model_smoke/quant_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/test_model.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::Json;
using test::TempDir;
using test::TestModel;

TEST(ModulePattern, Table) {
  const struct {
    const char* pattern;
    const char* module;
    bool matches;
  } rows[] = {
      // names, and what is below them
      {"lm_head", "lm_head", true},
      {"lm_head", "lm_head2", false},
      {"model.layers.0.mlp", "model.layers.0.mlp.up_proj", true},
      {"model.layers.0.mlp.up", "model.layers.0.mlp.up_proj", false},
      {"model.layers.1.mlp", "model.layers.10.mlp", false},
      {"a.b", "axb", false},
      {"up_proj", "model.layers.0.mlp.up_proj", false},
      // globs: the star crosses dots, nothing else is special
      {"*self_attn*", "model.layers.0.self_attn.qkv_proj", true},
      {"*self_attn*", "model.layers.0.mlp.experts.3.gate_up_proj", false},
      {"model.layers.*.mlp.up_proj", "model.layers.12.mlp.up_proj", true},
      {"model.layers.*.mlp.up_proj", "model.layers.12.mlp.up_proj2", false},
      {"mtp*", "mtp_layers.0.x", true},
      {"in_proj_*", "model.layers.0.linear_attn.in_proj_b", true},
      {"a.b*", "axbc", false},
      {"a?*", "ab", false},
      {"[ab]*", "a", false},
      {"*", "anything.at.all", true},
      // expressions are anchored at the start only
      {"re:.*lm_head", "lm_head", true},
      {"re:lm", "lm_head", true},
      {"re:head", "lm_head", false},
      {"re:.*mlp\\.(up|gate)_proj$", "model.layers.3.mlp.gate_proj", true},
      {"re:.*mlp\\.(up|gate)_proj$", "model.layers.3.mlp.gate_proj2", false},
      // the class
      {"Linear", "model.layers.3.mlp.gate_proj", true},
      // language_model. on either side
      {"model.layers.0.mlp.up_proj", "model.language_model.layers.0.mlp.up_proj", true},
      {"language_model.model.layers.0.x", "model.layers.0.x", true},
      {"model.language_model.layers.0.x", "model.layers.0.x", true},
      {"model.layers.0.x", "language_model.model.layers.0.x", true},
      {"re:language_model.*", "model.layers.0.x", true},
      {"model.my_language_model.x", "model.my_x", false},
  };
  for (const auto& r : rows) {
    EXPECT_EQ(ModulePattern(r.pattern, "f", "k").matches(r.module), r.matches)
        << r.pattern << " on " << r.module;
    ModuleList list;
    list.add(r.pattern, "f", "k");
    EXPECT_EQ(list.find(r.module) != nullptr, r.matches) << r.pattern << " on " << r.module;
  }
}

TEST(ModulePattern, GlobsAreNotExponential) {
  std::string pattern, text(5000, 'a');
  for (int i = 0; i < 50; ++i) pattern += "a*";
  EXPECT_FALSE(glob_match(pattern + "b", text));
  EXPECT_TRUE(glob_match(pattern, text));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
}

struct Opened {
  explicit Opened(const TestModel& m) { m.write(dir); }
  TempDir dir;
  ModelDir model{dir.path()};
};

struct Loaded {
  explicit Loaded(const TestModel& m) : files(m) {}
  Opened files;
  QuantConfig quant = QuantConfig::load(files.model);
  Checkpoint checkpoint = Checkpoint::open(files.model);
};

TEST(QuantConfig, NoneMeansPlain) {
  const Loaded l(test::tiny_model());
  EXPECT_EQ(l.quant.method(), QuantMethod::kNone);
  EXPECT_EQ(l.quant.format_of("model.layers.0.mlp.up_proj", l.checkpoint), ModuleFormat::kPlain);
}

TEST(QuantConfig, DecidesPerModule) {
  const Loaded l(test::tiny_int8_model());
  EXPECT_EQ(l.quant.method(), QuantMethod::kW8A8Int8);
  EXPECT_EQ(l.quant.format_of("model.layers.0.mlp.up_proj", l.checkpoint), ModuleFormat::kInt8);
  EXPECT_EQ(l.quant.format_of("model.layers.0.linear_attn.in_proj_a", l.checkpoint),
            ModuleFormat::kPlain);
  EXPECT_EQ(l.quant.format_of("lm_head", l.checkpoint), ModuleFormat::kPlain);
  EXPECT_TRUE(l.quant.unmatched_entries(l.checkpoint).empty());
}

TEST(QuantConfig, ScalesMayBeVectorsAndBf16AndZero) {
  TestModel m = test::tiny_int8_model();
  test::TestTensor& s = m.tensor("model.layers.0.mlp.up_proj.weight_scale");
  s.shape = {24};
  s.dtype = "BF16";
  s.bytes.assign(48, '\0');
  const Loaded l(m);
  EXPECT_EQ(l.quant.format_of("model.layers.0.mlp.up_proj", l.checkpoint), ModuleFormat::kInt8);
}

// Bug log L02: reported, by name.
TEST(QuantConfig, EntriesThatMatchNothingAreReported) {
  TestModel m = test::tiny_int8_model();
  for (const char* entry : {"model.layers.9.mlp", "re:.*visual.*", "*ghost*", "model.layers.0"}) {
    m.config["quantization_config"]["ignore"].push_back(entry);
  }
  m.config["quantization_config"]["ignore"].erase(0);  // lm_head: implied, and always a known name
  const Loaded l(m);
  const std::vector<std::string> w = l.quant.unmatched_entries(l.checkpoint);
  ASSERT_EQ(w.size(), 3u);
  EXPECT_NE(w[0].find("\"model.layers.9.mlp\""), std::string::npos);
  EXPECT_NE(w[1].find("\"re:.*visual.*\""), std::string::npos);
  EXPECT_NE(w[2].find("\"*ghost*\""), std::string::npos);
  EXPECT_EQ(l.quant.format_of("lm_head", l.checkpoint), ModuleFormat::kPlain);
}

// Tens of thousands of entries, as lists that name every expert have.
TEST(QuantConfig, LongListsAreLookedUp) {
  TestModel m = test::tiny_int8_model();
  for (int i = 0; i < 50'000; ++i) {
    m.config["quantization_config"]["ignore"].push_back("model.layers.99.mlp.experts." +
                                                        std::to_string(i) + ".up_proj");
  }
  const Loaded l(m);
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(l.quant.excluded_by("model.layers.0.mlp.up_proj"), nullptr);
  }
  EXPECT_EQ(l.quant.unmatched_entries(l.checkpoint).size(), 50'000u);
}

TEST(QuantConfig, SharedGoldens) {
  const std::string root = quern::test::source_dir() + "/../shared/goldens/public/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not on this machine";
  for (const char* name : {"qwen35_dense.ct_int8", "qwen35_dense.w8a8_int8"}) {
    const ModelDir dir(root + name);
    const QuantConfig q = QuantConfig::load(dir);
    const Checkpoint c = Checkpoint::open(dir);
    EXPECT_EQ(q.format_of("model.layers.0.linear_attn.in_proj_qkv", c), ModuleFormat::kInt8);
    EXPECT_EQ(q.format_of("model.layers.0.linear_attn.in_proj_b", c), ModuleFormat::kPlain);
    EXPECT_EQ(q.format_of("model.layers.3.self_attn.q_proj", c), ModuleFormat::kInt8);
    EXPECT_EQ(q.format_of("lm_head", c), ModuleFormat::kPlain);
    EXPECT_TRUE(q.unmatched_entries(c).empty());
  }
  for (const char* name : {"qwen35_dense.gptq_g32", "qwen35_dense.gptq_act", "qwen35_dense.awq"}) {
    const ModelDir dir(root + name);
    const QuantConfig q = QuantConfig::load(dir);
    const Checkpoint c = Checkpoint::open(dir);
    EXPECT_EQ(q.format_of("model.layers.0.linear_attn.in_proj_qkv", c), ModuleFormat::kInt4);
    EXPECT_EQ(q.format_of("model.layers.0.linear_attn.in_proj_b", c), ModuleFormat::kPlain);
    EXPECT_EQ(q.format_of("lm_head", c), ModuleFormat::kPlain);
    EXPECT_TRUE(q.unmatched_entries(c).empty());
  }
  for (const char* name : {"qwen35_dense.fp8_block", "qwen35_dense.nvfp4_all"}) {
    const bool fp4 = std::string(name).ends_with("nvfp4_all");
    const std::string at = fp4 ? "model.language_model.layers." : "model.layers.";
    const ModuleFormat format = fp4 ? ModuleFormat::kFp4 : ModuleFormat::kFp8;
    const ModelDir dir(root + name);
    const QuantConfig q = QuantConfig::load(dir);
    const Checkpoint c = Checkpoint::open(dir);
    EXPECT_EQ(q.format_of(at + "0.linear_attn.in_proj_qkv", c), format) << name;
    EXPECT_EQ(q.format_of(at + "3.self_attn.q_proj", c), format) << name;
    EXPECT_EQ(q.format_of("lm_head", c), ModuleFormat::kPlain) << name;
    EXPECT_TRUE(q.unmatched_entries(c).empty()) << name;
  }
}

}  // namespace
}  // namespace quern::smoke
