// Seeded random damage to every kind of file: it loads, or InputError; nothing else. A failure
// prints the seed; run one case again with QUERN_TEST_SEED=<seed> QUERN_TEST_CASES=1.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model_smoke/input_error.h"
#include "model_smoke/model_config.h"
#include "model_smoke/quant_config.h"
#include "model_smoke/safetensors.h"
#include "model_smoke/tokenizer.h"
#include "tests/model_smoke/damage.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

// Reads every byte of every tensor, so that a view outside the file is seen.
void read_all(const SafetensorsFile& file) {
  unsigned sum = 0;
  for (const TensorView& t : file.tensors()) {
    EXPECT_EQ(static_cast<uint64_t>(t.elements()) * static_cast<uint64_t>(bits_of(t.dtype)),
              t.bytes * 8);
    for (uint64_t i = 0; i < t.bytes; ++i) sum += static_cast<unsigned>(t.data[i]);
    (void)first_non_finite(t);
    (void)is_constant(t);
  }
  testing::Test::RecordProperty("sum", static_cast<int>(sum & 0xff));
}

// The bytes as a mapped file that never touches a disk.
FileMap in_memory(const std::string& bytes) {
  const int fd = memfd_create("quern-mutation", MFD_CLOEXEC);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return FileMap::from_fd(fd, "mutation");
}

TEST(Mutation, SafetensorsBytes) {
  const std::string good = safetensors_bytes(tiny_model().tensors);
  run_cases("safetensors bytes", 3000, [&](Rng* rng) {
    std::string header = good.substr(0, 8 + 4096);
    std::string bytes = damage(header, rng, (*rng)() % 4 == 0 ? 0 : 8) + good.substr(8 + 4096);
    read_all(SafetensorsFile(in_memory(bytes)));
  });
}

TEST(Mutation, SafetensorsHeaderTree) {
  const std::string good = safetensors_bytes({{"a", "F32", {2, 3}, std::string(24, '\1')},
                                              {"b", "U8", {5}, std::string(5, '\2')},
                                              {"c", "BF16", {}, std::string(2, '\3')},
                                              {"d", "I64", {0, 4}, ""}});
  const size_t data = good.size() - 31;
  const Json header = Json::parse(good.begin() + 8, good.begin() + static_cast<long>(data));
  run_cases("safetensors header tree", 3000, [&](Rng* rng) {
    Json bent = header;
    damage_tree(&bent, rng);
    read_all(SafetensorsFile(in_memory(safetensors_raw(bent.dump(), good.substr(data)))));
  });
}

TEST(Mutation, Config) {
  const Json good = tiny_int8_model().config;
  run_cases("config", 4000, [&](Rng* rng) {
    Json bent = good;
    damage_tree(&bent, rng);
    std::string text = bent.dump();
    if ((*rng)() % 3 == 0) text = damage(std::move(text), rng);
    const Json parsed = parse_json(text, "config.json");
    (void)parse_model_config(parsed, "config.json");
    (void)QuantConfig::parse(parsed, "config.json");
  });
}

/// Configs of FP8 and NVFP4, with what an FP8 cache declares.
TEST(Mutation, FloatConfigs) {
  std::vector<Json> good;
  for (const FloatFile file :
       {FloatFile::kFp8Block, FloatFile::kCtFp8, FloatFile::kModelOptNvfp4, FloatFile::kCtNvfp4}) {
    good.push_back(tiny_float_model({.file = file}).config);
    good.back()["quantization_config"]["kv_cache_scheme"] = {{"type", "float"}, {"num_bits", 8}};
  }
  const Json nested = read_nested(tiny_float_model({.file = FloatFile::kNestedNvfp4}));
  run_cases("float configs", 4000, [&](Rng* rng) {
    Json bent = good[(*rng)() % good.size()];
    damage_tree(&bent, rng);
    (void)QuantConfig::parse(bent, "config.json");
    Json other = nested;
    damage_tree(&other, rng);
    (void)QuantConfig::parse_nested(other, "hf_quant_config.json");
  });
}

TEST(Mutation, FloatDirectory) {
  run_cases("float directory", 300, [&](Rng* rng) {
    constexpr FloatFile kForms[] = {FloatFile::kFp8Block, FloatFile::kBothNvfp4,
                                    FloatFile::kCtNvfp4};
    TestModel m = tiny_float_model({.file = kForms[(*rng)() % 3]});
    add_kv_scales(m, 0.5f, 0.25f);
    m.config["quantization_config"]["kv_cache_scheme"] = "FP8";
    if ((*rng)() % 2 == 0) {
      damage_tree(&m.config["quantization_config"], rng);
    } else {
      TestTensor& t = m.tensors[(*rng)() % m.tensors.size()];
      if ((*rng)() % 2 == 0 && !t.bytes.empty()) {
        t.bytes[(*rng)() % t.bytes.size()] = static_cast<char>((*rng)());
      } else {
        t.name = m.tensors[(*rng)() % m.tensors.size()].name + "_scale";
      }
    }
    const TempDir dir;
    m.write(dir);
    load_everything(dir.path());
  });
}

TEST(Mutation, Index) {
  TestModel m = tiny_model();
  const Json good = m.shard(3);
  const TempDir dir;
  m.write(dir);
  run_cases("index", 1500, [&](Rng* rng) {
    Json bent = good;
    damage_tree(&bent, rng);
    std::string text = bent.dump();
    if ((*rng)() % 2 == 0) text = damage(std::move(text), rng);
    dir.write("model.safetensors.index.json", text);
    (void)Checkpoint::open(ModelDir(dir.path()));
  });
}

// A small vocabulary, so that damage hits the structure and not only names.
Json short_tokenizer() {
  Json t = tiny_tokenizer();
  Json vocab = Json::object();
  const char* const letters[] = {"h", "e", "l", "o", "a", "!", "he", "ll", "hell"};
  int id = 0;
  for (const char* s : letters) vocab[s] = id++;
  vocab[byte_char(' ')] = id++;
  t["model"]["vocab"] = vocab;
  t["added_tokens"][0]["id"] = id;
  return t;
}

TEST(Mutation, Tokenizer) {
  const Json good = short_tokenizer();
  run_cases("tokenizer", 4000, [&](Rng* rng) {
    Json bent = good;
    damage_tree(&bent, rng);
    std::string text = bent.dump();
    if ((*rng)() % 3 == 0) text = damage(std::move(text), rng);
    const Tokenizer tokenizer = Tokenizer::parse(text, "tokenizer.json");
    const std::vector<int32_t> ids = tokenizer.encode(hostile_text(), true);
    (void)tokenizer.decode(ids);
  });
}

TEST(Mutation, WholeDirectory) {
  const TempDir dir;
  run_cases("directory", 300, [&](Rng* rng) {
    TestModel m = tiny_int8_model();
    switch ((*rng)() % 4) {
      case 0:
        damage_tree(&m.config, rng);
        break;
      case 1:
        damage_tree(&m.tokenizer, rng);
        break;
      case 2:
        damage_tree(&m.generation, rng);
        break;
      default:
        m.raw["model.safetensors"] = damage(safetensors_bytes(m.tensors), rng);
        break;
    }
    m.write(dir);
    load_everything(dir.path());
  });
}

}  // namespace
}  // namespace quern::smoke::test
