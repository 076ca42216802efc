#include "model_smoke/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/test_model.h"

namespace quern::smoke {
namespace {

using test::Json;
using test::TempDir;
using test::TestModel;

struct Opened {
  TempDir dir;
  std::unique_ptr<ModelDir> model;
  std::unique_ptr<Checkpoint> checkpoint;
};

std::unique_ptr<Opened> open(const TestModel& m) {
  auto o = std::make_unique<Opened>();
  m.write(o->dir);
  o->model = std::make_unique<ModelDir>(o->dir.path());
  o->checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(*o->model));
  return o;
}

TEST(Checkpoint, EveryTensorOnce) {
  const auto o = open(test::tiny_model());
  Checkpoint& c = *o->checkpoint;
  EXPECT_EQ(c.get("model.norm.weight", {16}).elements(), 16);
  EXPECT_THROW((void)c.get("model.norm.weight"), InputError);
  EXPECT_THROW((void)c.get("model.norm.weights"), InputError);
  EXPECT_THROW((void)c.get("lm_head.weight", {16, 260}), InputError);
  c.ignore("lm_head.weight", "a test");
  EXPECT_THROW((void)c.get("lm_head.weight"), InputError);
  EXPECT_THROW(c.ignore("lm_head.weight", "again"), InputError);
  EXPECT_THROW(c.require_all_consumed(), InputError);
  EXPECT_EQ(c.ignore_prefix("model.layers.", "a test"), 25u);
  EXPECT_EQ(c.unconsumed(), std::vector<std::string>{"model.embed_tokens.weight"});
  (void)c.get("model.embed_tokens.weight");
  EXPECT_NO_THROW(c.require_all_consumed());
  EXPECT_EQ(c.ignored().size(), 26u);
  EXPECT_EQ(c.ignored()[0].reason, "a test");
}

TEST(Checkpoint, ShardsGiveTheSameTensors) {
  TestModel m = test::tiny_model();
  const auto single = open(m);
  m.shard(3);
  const auto sharded = open(m);
  EXPECT_EQ(sharded->checkpoint->file_count(), 3u);
  EXPECT_EQ(single->checkpoint->names(), sharded->checkpoint->names());
  for (const std::string& name : single->checkpoint->names()) {
    const TensorView a = single->checkpoint->get(name);
    const TensorView b = sharded->checkpoint->get(name);
    ASSERT_EQ(a.bytes, b.bytes) << name;
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes), 0) << name;
  }
  EXPECT_TRUE(sharded->checkpoint->warnings().empty());
}

TEST(Checkpoint, WrongTotalSizeIsReported) {
  TestModel m = test::tiny_model();
  Json index = m.shard(2);
  index["metadata"]["total_size"] = 7;
  m.raw["model.safetensors.index.json"] = index.dump();
  const auto o = open(m);
  ASSERT_EQ(o->checkpoint->warnings().size(), 1u);
  EXPECT_NE(o->checkpoint->warnings()[0].find("total_size"), std::string::npos);
}

TEST(Checkpoint, IndexBesideASingleFileIsReported) {
  TestModel m = test::tiny_model();
  m.raw["model.safetensors.index.json"] = "{}";
  EXPECT_EQ(open(m)->checkpoint->warnings().size(), 1u);
}

// Bug log L03.
TEST(Checkpoint, ConstantTensorsAreReported) {
  TestModel m = test::tiny_model();
  m.tensor("model.norm.weight").bytes.assign(32, '\0');
  const auto o = open(m);
  (void)o->checkpoint->get("model.norm.weight");
  (void)o->checkpoint->get("lm_head.weight");
  ASSERT_EQ(o->checkpoint->warnings().size(), 1u);
  EXPECT_NE(o->checkpoint->warnings()[0].find("model.norm.weight: all 16 values are 0"),
            std::string::npos);
}

// Bug log F09: a file cut while it is open.
TEST(Checkpoint, AShrunkFileIsNoticedBeforeItIsRead) {
  const auto o = open(test::tiny_model());
  std::filesystem::resize_file(o->dir.file("model.safetensors"), 4096);
  try {
    (void)o->checkpoint->get("lm_head.weight");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("4096 bytes"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace quern::smoke
