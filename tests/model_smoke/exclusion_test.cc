// loading-rules.md B1-B6: which modules the lists of a ModelOpt config leave out.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model_smoke/checkpoint.h"
#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"
#include "tests/model_smoke/load_outcome.h"
#include "tests/model_smoke/test_model.h"

namespace quern::smoke {
namespace {

using test::expect_says;
using test::Json;
using test::TempDir;
using test::TestModel;

QuantConfig nested(const Json& exclude) {
  Json json = {{"quantization", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}};
  if (!exclude.is_null()) json["quantization"]["exclude_modules"] = exclude;
  return QuantConfig::parse_nested(json, "hf_quant_config.json");
}
QuantConfig flat(const Json& exclude) {
  Json json = {{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}};
  if (!exclude.is_null()) json["quantization_config"]["ignore"] = exclude;
  return QuantConfig::parse(json, "config.json");
}
enum class Exclusion : unsigned char { kQuantized, kExcluded, kPartly };

/// What is decided of a module whose codes a file has, by the lists alone.
Exclusion exclusion(const QuantConfig& q, const std::string& module) {
  const TempDir dir;
  TestModel m;
  m.tensors = {{module + ".weight", "U8", {1, 8}, std::string(8, '\x12')},
               {module + ".weight_scale", "F8_E4M3", {1, 1}, "\x38"},
               {module + ".weight_scale_2", "F32", {}, std::string("\0\0\x80\x3f", 4)}};
  m.write(dir);
  const Checkpoint checkpoint = Checkpoint::open(ModelDir(dir.path()));
  try {
    const ModuleDecision decision = q.decide(module, checkpoint);
    EXPECT_EQ(decision.format, ModuleFormat::kFp4) << module;
    EXPECT_EQ(q.excluded_by(module), nullptr) << module;
    return Exclusion::kQuantized;
  } catch (const InputError& e) {
    if (e.key != module + ".weight") {
      expect_says(e.what(), {"all or none of what is joined as", module, " but not "}, module);
      return Exclusion::kPartly;
    }
    expect_says(e.what(), {"a plain weight, because ", " entry "}, module);
    EXPECT_NE(q.excluded_by(module), nullptr) << module;
    return Exclusion::kExcluded;
  }
}

TEST(LoadingRules, B1_ExpertsOnly) {
  for (const auto& form : {nested, flat}) {
    const QuantConfig q = form({"*self_attn*", "lm_head"});
    EXPECT_EQ(exclusion(q, "model.layers.0.self_attn.qkv_proj"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "lm_head"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "model.layers.0.mlp.experts.3.gate_up_proj"), Exclusion::kQuantized);
  }
}

TEST(LoadingRules, B2_Uniform) {
  for (const auto& form : {nested, flat}) {
    const QuantConfig q = form(Json::array({"lm_head"}));
    EXPECT_EQ(exclusion(q, "model.layers.0.self_attn.qkv_proj"), Exclusion::kQuantized);
    EXPECT_EQ(exclusion(q, "model.layers.0.linear_attn.in_proj_qkvz"), Exclusion::kQuantized);
    EXPECT_EQ(exclusion(q, "lm_head"), Exclusion::kExcluded);
  }
}

TEST(LoadingRules, B3_NoListExcludesNothing) {
  for (const auto& form : {nested, flat}) {
    for (const Json& list : {Json(), Json::array()}) {
      EXPECT_EQ(exclusion(form(list), "lm_head"), Exclusion::kQuantized);
    }
  }
}

TEST(LoadingRules, B4_MtpAndLanguageModel) {
  for (const auto& form : {nested, flat}) {
    const QuantConfig q =
        form({"mtp*", "model.layers.0.x", "language_model.model.layers.1.x", "*layers.3.*"});
    EXPECT_EQ(exclusion(q, "mtp_layers.0.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "mtp.layers.0.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "model.layers.2.not_mtp"), Exclusion::kQuantized);
    EXPECT_EQ(exclusion(q, "language_model.model.layers.3.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "language_model.model.layers.0.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "model.layers.0.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "model.layers.1.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "model.language_model.layers.1.x"), Exclusion::kExcluded);
    EXPECT_EQ(exclusion(q, "model.layers.2.x"), Exclusion::kQuantized);
  }
}

TEST(LoadingRules, B5_WhatIsLiteral) {
  const struct {
    const char* pattern;
    const char* module;
    bool excluded;
  } rows[] = {
      {"a.b", "axb", false},
      {"a.b", "a.b", true},
      {"a*d", "a.b.c.d", true},  // the star crosses dots
      {"a?c", "abc", false},
      {"a?c", "a?c", true},
      {"[ab]", "a", false},
      {"[ab]", "[ab]", true},
      {"gate", "model.layers.0.mlp.gate", true},  // one part between dots
      {"gate", "model.layers.0.mlp.gate_proj", false},
      {"mlp.gate", "model.layers.0.mlp.gate", false},  // neither the whole name nor one part
      {"q_*", "model.layers.0.self_attn.q_proj", true},
      {"q_*", "model.layers.0.self_attn.kq_proj", false},
  };
  for (const auto& r : rows) {
    for (const auto& form : {nested, flat}) {
      EXPECT_EQ(exclusion(form(Json::array({r.pattern})), r.module),
                r.excluded ? Exclusion::kExcluded : Exclusion::kQuantized)
          << r.pattern << " on " << r.module;
    }
  }
}

TEST(LoadingRules, B6_FusedModules) {
  const struct {
    const char* joined;
    std::vector<std::string> shards;
  } joins[] = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
               {"gate_up_proj", {"gate_proj", "up_proj"}},
               {"in_proj_qkvz", {"in_proj_qkv", "in_proj_z"}},
               {"in_proj_ba", {"in_proj_b", "in_proj_a"}},
               {"fused_qkv_a_proj_with_mqa", {"q_a_proj", "kv_a_proj_with_mqa"}}};
  for (const auto& join : joins) {
    const std::string at = "model.layers.3.part.", name = at + join.joined;
    Json all = Json::array();
    for (const std::string& shard : join.shards) all.push_back(at + shard);
    EXPECT_EQ(exclusion(nested(all), name), Exclusion::kExcluded) << name;
    EXPECT_EQ(exclusion(nested(Json::array({"lm_head"})), name), Exclusion::kQuantized) << name;
    for (const std::string& shard : join.shards) {
      EXPECT_EQ(exclusion(nested(Json::array({at + shard})), name), Exclusion::kPartly) << shard;
      // The list has the joined name, the file the shards.
      for (const std::string& entry : {name, std::string("*") + join.joined, at + "*"}) {
        EXPECT_EQ(exclusion(nested(Json::array({entry})), at + shard), Exclusion::kExcluded)
            << shard << " by " << entry;
      }
    }
  }
  const QuantConfig other = nested({"model.layers.3.self_attn.my_qkv_proj", "*in_proj_qkv*"});
  EXPECT_EQ(exclusion(other, "model.layers.3.self_attn.q_proj"), Exclusion::kQuantized);
  EXPECT_EQ(exclusion(other, "model.layers.3.linear_attn.in_proj_qkv"), Exclusion::kExcluded);
  EXPECT_EQ(exclusion(other, "model.layers.3.linear_attn.in_proj_z"), Exclusion::kQuantized);
}

}  // namespace
}  // namespace quern::smoke
