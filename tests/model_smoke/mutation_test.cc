// Seeded random damage to every kind of file: it loads, or InputError; nothing else. A failure
// prints the seed; run one case again with QUERN_TEST_SEED=<seed> QUERN_TEST_CASES=1.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "model_smoke/input_error.h"
#include "model_smoke/model_config.h"
#include "model_smoke/quant_config.h"
#include "model_smoke/safetensors.h"
#include "model_smoke/tokenizer.h"
#include "tests/model_smoke/float_model.h"
#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

using Rng = std::mt19937_64;

uint64_t number_from(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

// Damages bytes: flips, cuts, copies, and tokens that JSON readers trip over.
std::string damage(std::string s, Rng* rng, size_t from = 0) {
  static const char* const kTokens[] = {"null",     "-1",      "1e99",      "18446744073709551616",
                                        "\"",       "{",       "}",         "[",
                                        "]",        ",",       ":",         "9007199254740993",
                                        "true",     "\\u0000", "\xff",      "\xc3",
                                        "[[[[[[[[", "0.5",     "\"dtype\"", " "};
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>((*rng)() % n); };
  const size_t changes = 1 + below(3);
  for (size_t i = 0; i < changes && s.size() > from; ++i) {
    const size_t at = from + below(s.size() - from);
    switch (below(6)) {
      case 0:
        s[at] = static_cast<char>((*rng)() & 255);
        break;
      case 1:
        s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 2:
        s.erase(at, 1 + below(16));
        break;
      case 3:
        s.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 4:
        s.insert(at, s.substr(from + below(s.size() - from), below(64)));
        break;
      default:
        s.resize(at);
        break;
    }
  }
  return s;
}

// A valid JSON tree with one value replaced: gets past the parser into the checks behind it.
void damage_tree(Json* root, Rng* rng) {
  static const Json kValues[] = {nullptr,
                                 true,
                                 0,
                                 -1,
                                 1,
                                 7,
                                 64,
                                 uint64_t{1} << 31,
                                 uint64_t{1} << 63,
                                 1e99,
                                 0.3,
                                 "8",
                                 "",
                                 "Sequence",
                                 Json::array(),
                                 Json::object(),
                                 Json::array({0, 8}),
                                 Json::array({"a", "b"})};
  Json* at = root;
  for (int depth = 0; depth < 8 && at->is_structured() && !at->empty(); ++depth) {
    if (depth > 0 && (*rng)() % 3 == 0) break;
    const auto step = static_cast<std::ptrdiff_t>((*rng)() % at->size());
    auto it = at->begin();
    std::advance(it, step);
    if ((*rng)() % 12 == 0) {
      at->erase(it);
      return;
    }
    at = &*it;
  }
  *at = kValues[(*rng)() % std::size(kValues)];
}

template <typename Load>
void run(const char* what, uint64_t cases, const Load& load) {
  const uint64_t first = number_from("QUERN_TEST_SEED", 20260101);
  cases = std::min(number_from("QUERN_TEST_CASES", cases), uint64_t{100'000});
  uint64_t loaded = 0;
  for (uint64_t i = 0; i < cases; ++i) {
    Rng rng(first + i);
    try {
      load(&rng);
      ++loaded;
    } catch (const InputError& e) {
      EXPECT_FALSE(std::string(e.what()).empty());
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << " threw " << e.what() << "; again with QUERN_TEST_SEED=" << first + i
                    << " QUERN_TEST_CASES=1";
    }
  }
  std::printf("%s: %llu cases from seed %llu, %llu loaded\n", what,
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(loaded));
  EXPECT_LT(loaded, cases) << "no damage was noticed";
}

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
  run("safetensors bytes", 3000, [&](Rng* rng) {
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
  run("safetensors header tree", 3000, [&](Rng* rng) {
    Json bent = header;
    damage_tree(&bent, rng);
    read_all(SafetensorsFile(in_memory(safetensors_raw(bent.dump(), good.substr(data)))));
  });
}

TEST(Mutation, Config) {
  const Json good = tiny_int8_model().config;
  run("config", 4000, [&](Rng* rng) {
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
  run("float configs", 4000, [&](Rng* rng) {
    Json bent = good[(*rng)() % good.size()];
    damage_tree(&bent, rng);
    (void)QuantConfig::parse(bent, "config.json");
    Json other = nested;
    damage_tree(&other, rng);
    (void)QuantConfig::parse_nested(other, "hf_quant_config.json");
  });
}

TEST(Mutation, FloatDirectory) {
  run("float directory", 300, [&](Rng* rng) {
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
  run("index", 1500, [&](Rng* rng) {
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
  run("tokenizer", 4000, [&](Rng* rng) {
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
  run("directory", 300, [&](Rng* rng) {
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
