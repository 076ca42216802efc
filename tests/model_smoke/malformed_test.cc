// Every directory of the malformed corpus must throw InputError with file, key and reason, in
// bounded time. cli_malformed_test.cc runs the same corpus through the program.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <set>

#include "model_smoke/input_error.h"
#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

// Two orders above what a case takes: sanitizers and a loaded machine included.
constexpr std::chrono::seconds kLimit(20);

void check_case(const MalformedCase& c) {
  SCOPED_TRACE(c.name);
  TestModel model = c.int8 ? tiny_int8_model() : tiny_model();
  c.bend(&model);
  const TempDir dir;
  model.write(dir);
  const auto start = std::chrono::steady_clock::now();
  try {
    load_everything(dir.path());
    ADD_FAILURE() << "loaded";
  } catch (const InputError& e) {
    const std::string message = e.what();
    for (const std::string& part : c.says) {
      EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
    }
    EXPECT_FALSE(e.file.empty());
    EXPECT_FALSE(e.expected.empty());
    EXPECT_LT(message.size(), 4000u);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit);
}

void check_all(const std::vector<MalformedCase>& cases) {
  for (const MalformedCase& c : cases) check_case(c);
}

TEST(MalformedCorpus, Safetensors) {
  check_all(malformed_safetensors());
}
TEST(MalformedCorpus, Index) {
  check_all(malformed_index());
}
TEST(MalformedCorpus, Config) {
  check_all(malformed_config());
}
TEST(MalformedCorpus, QuantizationConfig) {
  check_all(malformed_quant());
}
TEST(MalformedCorpus, FloatFormats) {
  check_all(malformed_float());
}
TEST(MalformedCorpus, Tokenizer) {
  check_all(malformed_tokenizer());
}

// What the corpus bends is good before it is bent.
TEST(MalformedCorpus, StartsFromGoodModels) {
  const TempDir plain;
  tiny_model().write(plain);
  EXPECT_NO_THROW(load_everything(plain.path()));
  const TempDir int8;
  tiny_int8_model().write(int8);
  EXPECT_NO_THROW(load_everything(int8.path()));
  const TempDir sharded;
  TestModel m = tiny_model();
  m.shard(2);
  m.write(sharded);
  EXPECT_NO_THROW(load_everything(sharded.path()));
}

TEST(MalformedCorpus, IsAsLargeAsPromised) {
  std::set<std::string> names;
  for (const MalformedCase& c : all_malformed()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_FALSE(c.says.empty()) << c.name;
  }
  std::printf("%zu malformed models\n", names.size());
  RecordProperty("cases", static_cast<int>(names.size()));
  EXPECT_GE(names.size(), 150u);  // reliability.md L1
}

}  // namespace
}  // namespace quern::smoke::test
