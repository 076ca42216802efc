#include "model_smoke/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "model_smoke/input_error.h"
#include "model_smoke/pretokenizer.h"
#include "model_smoke/utf8.h"
#include "tests/model_smoke/test_model.h"

namespace quern::smoke {
namespace {

using test::Json;

Tokenizer make(const Json& json) {
  return Tokenizer::parse(json.dump(), "tokenizer.json");
}

using Ids = std::vector<int32_t>;

TEST(Tokenizer, MergesByRank) {
  const Tokenizer t = make(test::tiny_tokenizer());
  EXPECT_EQ(t.encode("hell"), Ids{258});
  EXPECT_EQ(t.encode("hello"), (Ids{258, 'o'}));
  EXPECT_EQ(t.encode("lll"), (Ids{257, 'l'}));  // leftmost of equal rank
  EXPECT_EQ(t.encode("heh"), (Ids{256, 'h'}));
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.encode(std::string("\0", 1)), Ids{0});
  EXPECT_EQ(t.id_limit(), 260);
  EXPECT_EQ(t.id_of("<|end|>"), 259);
  EXPECT_EQ(t.id_of("nope"), std::nullopt);
  EXPECT_TRUE(t.is_special(259));
  EXPECT_FALSE(t.has_id(260));
  EXPECT_FALSE(t.has_id(-1));
}

TEST(Tokenizer, NormalizesToNfc) {
  const Tokenizer t = make(test::tiny_tokenizer());
  EXPECT_EQ(t.encode("e\xcc\x81"), (Ids{0xc3, 0xa9}));     // e + acute
  EXPECT_EQ(t.encode("\xe2\x84\xab"), (Ids{0xc3, 0x85}));  // ANGSTROM SIGN
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  Json j = test::tiny_tokenizer();
  j["model"]["merges"] = Json::array({"h e", "l l"});
  EXPECT_EQ(make(j).encode("hell"), (Ids{256, 257}));
  j["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(j).encode("hell"), Ids{258});
  EXPECT_EQ(make(j).encode("hello"), (Ids{256, 257, 'o'}));
}

TEST(Tokenizer, MergesMayBePairs) {
  Json j = test::tiny_tokenizer();
  j["model"]["merges"] = Json::array({Json::array({"h", "e"}), Json::array({"l", "l"})});
  EXPECT_EQ(make(j).encode("hell"), (Ids{256, 257}));
}

TEST(Tokenizer, TextMustBeUtf8) {
  const Tokenizer t = make(test::tiny_tokenizer());
  for (const char* bad : {"ab\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"}) {
    EXPECT_THROW((void)t.encode(bad), InputError) << bad;
  }
  EXPECT_THROW((void)t.decode(Ids{260}), InputError);
  EXPECT_THROW((void)t.decode(Ids{-1}), InputError);
}

TEST(Tokenizer, DecodesBrokenCharactersLossily) {
  const Tokenizer t = make(test::tiny_tokenizer());
  EXPECT_EQ(t.decode(Ids{'a', 0xc3}), "a\xef\xbf\xbd");
  EXPECT_EQ(t.decode(Ids{0xf0, 0x9f, 0x98, 0x80}), "\xf0\x9f\x98\x80");
  EXPECT_EQ(t.decode(Ids{'a', 259, 'b'}), "a<|end|>b");
  EXPECT_EQ(t.decode(Ids{'a', 259, 'b'}, true), "ab");
}

TEST(StreamDecoder, HoldsBackPartialCharacters) {
  const Tokenizer t = make(test::tiny_tokenizer());
  StreamDecoder s(t);
  EXPECT_EQ(s.push(0xf0), "");
  EXPECT_EQ(s.push(0x9f), "");
  EXPECT_EQ(s.push(0x98), "");
  EXPECT_EQ(s.push(0x80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(s.push(0xc3), "");
  EXPECT_EQ(s.push('a'),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(s.push(0xe2), "");
  EXPECT_EQ(s.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(s.finish(), "");
}

// Random bytes: the parts of the stream together are the whole decoded at once.
TEST(StreamDecoder, EqualsDecodingAtOnce) {
  const Tokenizer t = make(test::tiny_tokenizer());
  std::mt19937_64 rng(7);
  for (int round = 0; round < 500; ++round) {
    Ids ids;
    for (uint64_t i = rng() % 40; i > 0; --i) {
      const uint64_t high = rng() % 2;
      ids.push_back(static_cast<int32_t>(high ? 0x80 + rng() % 0x80 : rng() % 256));
    }
    StreamDecoder s(t);
    std::string streamed;
    for (const int32_t id : ids) streamed += s.push(id);
    ASSERT_EQ(streamed + s.finish(), t.decode(ids)) << "round " << round;
  }
}

Json added(const char* content, int id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", false}};
}

TEST(AddedTokens, LeftmostThenLongest) {
  Json j = test::tiny_tokenizer();
  j["added_tokens"].push_back(added("<a>", 260));
  j["added_tokens"].push_back(added("<a><b>", 261));
  j["added_tokens"].push_back(added("b><a>", 262));
  const Tokenizer t = make(j);
  EXPECT_EQ(t.encode("x<a><b><a>"), (Ids{'x', 261, 260}));
  EXPECT_EQ(t.encode("<a><c"), (Ids{260, '<', 'c'}));
  EXPECT_EQ(t.encode("b><a>"), Ids{262});
}

TEST(AddedTokens, StripAndSingleWord) {
  Json j = test::tiny_tokenizer();
  Json strip = added("[S]", 260);
  strip["lstrip"] = strip["rstrip"] = true;
  Json word = added("cat", 261);
  word["single_word"] = true;
  j["added_tokens"].push_back(strip);
  j["added_tokens"].push_back(word);
  const Tokenizer t = make(j);
  EXPECT_EQ(t.encode("a \t[S]\xe3\x80\x80 b"), (Ids{'a', 260, 'b'}));
  EXPECT_EQ(t.encode("[S] [S]"), (Ids{260, 260}));
  EXPECT_EQ(t.encode("cat"), Ids{261});
  EXPECT_EQ(t.encode("cats"), (Ids{'c', 'a', 't', 's'}));
  EXPECT_EQ(t.encode("\xc3\xa9"
                     "cat"),
            (Ids{0xc3, 0xa9, 'c', 'a', 't'}));
  EXPECT_EQ(t.encode("-cat-"), (Ids{'-', 261, '-'}));
}

TEST(AddedTokens, NormalizedOnesAreFoundAfterNormalization) {
  Json j = test::tiny_tokenizer();
  Json token = added("caf\xc3\xa9", 260);
  token["normalized"] = true;
  j["added_tokens"].push_back(token);
  EXPECT_EQ(make(j).encode("cafe\xcc\x81"), Ids{260});
  j["added_tokens"][1]["normalized"] = false;
  EXPECT_EQ(make(j).encode("cafe\xcc\x81"), (Ids{'c', 'a', 'f', 0xc3, 0xa9}));
}

TEST(PostProcessor, TemplatePutsTokensAround) {
  Json j = test::tiny_tokenizer();
  const Json bos = {{"SpecialToken", {{"id", "B"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json post = {{"type", "TemplateProcessing"},
                     {"single", {bos, text, bos}},
                     {"pair", Json::array()},
                     {"special_tokens", {{"B", {{"id", "B"}, {"ids", {259, 1}}}}}}};
  j["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, post}}};
  const Tokenizer t = make(j);
  EXPECT_EQ(t.encode("a", true), (Ids{259, 1, 'a', 259, 1}));
  EXPECT_EQ(t.encode("a", false), Ids{'a'});
  EXPECT_EQ(t.encode("", true), (Ids{259, 1, 259, 1}));
}

std::vector<std::string> split(const Json& pre, std::string_view text) {
  return PreTokenizer(JsonNode(pre, "f", "pre_tokenizer")).split(text);
}

Json sequence(const Json& first) {
  const Json last = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {first, last}}};
}

// The table of the tokenizers documentation for SplitDelimiterBehavior.
TEST(PreTokenizer, Behaviors) {
  const std::string text = "the-final--countdown";
  const auto cut = [&](const char* behavior, bool invert = false) {
    return split(sequence({{"type", "Split"},
                           {"pattern", {{"String", "-"}}},
                           {"behavior", behavior},
                           {"invert", invert}}),
                 text);
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(cut("Removed"), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(cut("Isolated"), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(cut("MergedWithPrevious"), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(cut("MergedWithNext"), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(cut("Contiguous"), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(cut("Removed", true), (Pieces{"-", "-", "-"}));
}

TEST(PreTokenizer, ByteLevelAlone) {
  const Json pre = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(split(pre, "it's 12  ok"), (Pieces{" it", "'s", " 12", " ", " ok"}));
  EXPECT_EQ(split(pre, ""), Pieces{});
  EXPECT_EQ(split(sequence({{"type", "Digits"}, {"individual_digits", true}}), "a12"),
            (Pieces{"a", "1", "2"}));
  EXPECT_EQ(split(sequence({{"type", "Digits"}, {"individual_digits", false}}), "a12b"),
            (Pieces{"a", "12", "b"}));
}

// U+180E lost the White_Space property in Unicode 6.3; PCRE2's own \s still has it.
TEST(PreTokenizer, WhiteSpaceIsTheUnicodeProperty) {
  const auto cut = [](std::string_view text) {
    return split(sequence({{"type", "Split"},
                           {"pattern", {{"Regex", "\\s+|[^\\s]+"}}},
                           {"behavior", "Isolated"}}),
                 text)
        .size();
  };
  EXPECT_EQ(cut("a\xe1\xa0\x8e"
                "b"),
            1u);
  EXPECT_EQ(cut("a\xc2\x85"
                "b"),
            3u);
  EXPECT_EQ(cut("a\xe2\x80\x89"
                "b"),
            3u);
  EXPECT_EQ(cut("a\xe2\x80\x8b"
                "b"),
            1u);  // ZERO WIDTH SPACE is none
}

// The tokenizers library ends the piece before a match, an empty one too.
TEST(PreTokenizer, EmptyMatchesCut) {
  const Json pre =
      sequence({{"type", "Split"}, {"pattern", {{"Regex", "x*"}}}, {"behavior", "Isolated"}});
  EXPECT_EQ(split(pre, "a\xc3\xa9xxb"), (std::vector<std::string>{"a", "\xc3\xa9", "xx", "b"}));
}

// One word, one run of spaces, one run of marks: n log n, not n squared. 100 KB at n squared would
// be 10^10 steps.
TEST(Tokenizer, LongRunsAreNotQuadratic) {
  Json j = test::tiny_tokenizer();
  Json& vocab = j["model"]["vocab"];
  Json& merges = j["model"]["merges"];
  std::string power = "a";
  for (int i = 0; i < 12; ++i) {  // aa, aaaa, ... so that merging goes many levels deep
    merges.push_back(power + " " + power);
    power += power;
    vocab[power] = 260 + i;
  }
  const Tokenizer t = make(j);
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text :
       {std::string(200'000, 'a'), std::string(200'000, ' '), std::string(200'000, '!'),
        std::string(200'000, '\n'), std::string(100'000, ' ') + "x"}) {
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
  EXPECT_EQ(t.encode(std::string(200'000, 'a')).size(), 200'000u / 4096 + 4);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Tokenizer, IsSharedBetweenThreads) {
  const Tokenizer t = make(test::tiny_tokenizer());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&t] {
      for (int round = 0; round < 200; ++round) {
        EXPECT_EQ(t.encode("hello hell <|end|>"), (Ids{258, 'o', ' ', 258, ' ', 259}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// "Substitution of Maximal Subparts", the example of the Unicode standard (table 3-8).
TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_ill_formed("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
            "\xef\xbf\xbd\x41");
  EXPECT_EQ(replace_ill_formed("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41");
  EXPECT_EQ(replace_ill_formed("plain"), "plain");
}

TEST(Utf8, IncompleteTails) {
  const struct {
    const char* text;
    size_t tail;
  } rows[] = {{"", 0},
              {"a", 0},
              {"\xc3", 1},
              {"\xc3\xa9", 0},
              {"\xe2\x82", 2},
              {"x\xf0\x9f\x98", 3},
              {"\xf0\x9f\x98\x80", 0},
              {"\x80", 0},
              {"\xff", 0},
              {"\xe0\x80", 0},
              {"\xf4\x90", 0},
              {"\xc3\xa9\xe2", 1}};
  for (const auto& r : rows) EXPECT_EQ(incomplete_utf8_tail(r.text), r.tail) << r.text;
}

}  // namespace
}  // namespace quern::smoke
