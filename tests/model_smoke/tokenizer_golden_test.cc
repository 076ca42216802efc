// Both tokenizers against what the Hugging Face tokenizers library makes of 92 strings.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "model_smoke/tokenizer.h"
#include "tests/model_smoke/test_model.h"
#include "tests/support/source_dir.h"

namespace quern::smoke {
namespace {

using test::Json;
using test::read_file;

void check_goldens(const Tokenizer& tokenizer, const Json& goldens) {
  ASSERT_EQ(goldens.size(), 92u);
  for (const Json& row : goldens) {
    const std::string text = row["text"];
    SCOPED_TRACE(row["text"].dump());
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(tokenizer.encode(text, true), row["ids_with_special"].get<std::vector<int32_t>>());
    EXPECT_EQ(tokenizer.decode(ids), row["decoded"].get<std::string>());
    // The stream gives the same text, one id at a time, in whole characters.
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      EXPECT_NO_THROW((void)Json(part).dump()) << "a part that is no valid UTF-8";
      streamed += part;
    }
    EXPECT_EQ(streamed + stream.finish(), row["decoded"].get<std::string>());
  }
}

TEST(TokenizerGolden, SmallCheckpoint) {
  const ModelDir dir(quern::test::source_dir() + "/model_smoke/checkpoints/qwen35_docs");
  check_goldens(
      Tokenizer::load(dir),
      Json::parse(read_file(quern::test::source_dir() +
                            "/tests/model_smoke/data/qwen35_docs.tokenizer.golden.json")));
}

// Not in the tree (size): beside it on machines that have the shared directory.
void check_shared(const std::string& tokenizer, const std::string& goldens) {
  const std::string shared = quern::test::source_dir() + "/../shared/";
  if (!std::filesystem::exists(shared + tokenizer)) {
    GTEST_SKIP() << shared << tokenizer << " is not on this machine";
  }
  const Tokenizer t = Tokenizer::parse(read_file(shared + tokenizer), tokenizer);
  check_goldens(t, Json::parse(read_file(shared + goldens)));
}

TEST(TokenizerGolden, PublishedQwen3) {
  check_shared("tokenizers/qwen3.tokenizer.json", "tokenizers/qwen3.golden.json");
}

// Three Split patterns in a row: another shape of the same machinery.
TEST(TokenizerGolden, DeepSeekPreTokenizer) {
  check_shared("checkpoints/dsv3_docs/tokenizer.json",
               "checkpoints/dsv3_docs.tokenizer.golden.json");
}

}  // namespace
}  // namespace quern::smoke
