// reliability.md 5.2 "tokenizer.json"; bug log F12, F13.
#include <filesystem>

#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

constexpr char kFile[] = "tokenizer.json";

MalformedCase json_case(std::string name, std::function<void(Json*)> bend,
                        std::vector<std::string> says) {
  says.insert(says.begin(), kFile);
  return {"tokenizer_" + name, [bend](TestModel* m) { bend(&m->tokenizer); }, std::move(says)};
}

// One value at a JSON pointer.
MalformedCase set_case(std::string name, std::string pointer, Json value,
                       std::vector<std::string> says) {
  return json_case(
      std::move(name), [pointer, value](Json* t) { (*t)[Json::json_pointer(pointer)] = value; },
      std::move(says));
}

MalformedCase erase_case(std::string name, std::string parent, std::string key) {
  return json_case(std::move(name),
                   [parent, key](Json* t) { (*t)[Json::json_pointer(parent)].erase(key); },
                   {key, "nothing"});
}

void add_vocabulary(std::vector<MalformedCase>* out) {
  const auto id = [&](const char* name, Json value, const char* reason) {
    out->push_back(set_case(std::string("id_") + name, "/model/vocab/hell", std::move(value),
                            {"model.vocab", reason}));
  };
  id("negative", -1, "from 0 to");
  id("2_31", uint64_t{1} << 31, "from 0 to");
  id("2_31_minus_1", 2147483647, "from 0 to");
  id("2_63", uint64_t{1} << 63, "from 0 to");
  id("string", "258", "from 0 to");
  id("float", 258.0, "from 0 to");
  id("null", nullptr, "from 0 to");
  id("duplicate", 257, "every id once");
  out->push_back(set_case("id_of_added_token", "/model/vocab/hell", 259,
                          {"added_tokens", "every id once", "hell", "<|end|>"}));
  id("gap", 1000, "without a gap");
  id("big_gap", 3'000'000, "without a gap");
  out->push_back(
      set_case("vocab_empty", "/model/vocab", Json::object(), {"vocab", "at least one"}));
  out->push_back(set_case("vocab_array", "/model/vocab", Json::array(), {"vocab", "an object"}));
  out->push_back(set_case("vocab_empty_token", "/model/vocab", {{"", 0}}, {"vocab", "not empty"}));
  out->push_back(erase_case("no_vocab", "/model", "vocab"));
  out->push_back(json_case("byte_without_token",
                           [](Json* t) {
                             (*t)["model"]["vocab"].erase("!");
                             (*t)["model"]["vocab"]["zz"] = 33;
                           },
                           {"model.vocab", "none for byte 33"}));
}

void add_model(std::vector<MalformedCase>* out) {
  for (const char* type : {"WordPiece", "Unigram", "WordLevel", "Foo", ""}) {
    out->push_back(set_case("model_type_" + std::string(*type ? type : "empty"), "/model/type",
                            type, {"model.type", "BPE"}));
  }
  out->push_back(erase_case("model_type_missing", "/model", "type"));
  out->push_back(set_case("model_null", "/model", nullptr, {"model", "an object"}));
  out->push_back(set_case("dropout", "/model/dropout", 0.1, {"model.dropout", "null or 0"}));
  out->push_back(
      set_case("byte_fallback", "/model/byte_fallback", true, {"byte_fallback", "false"}));
  out->push_back(set_case("prefix", "/model/continuing_subword_prefix", "##",
                          {"continuing_subword_prefix", "empty"}));
  out->push_back(
      set_case("suffix", "/model/end_of_word_suffix", "</w>", {"end_of_word_suffix", "empty"}));
  out->push_back(set_case("unk_absent", "/model/unk_token", "<unk>",
                          {"unk_token", "a token of the vocabulary"}));
  const auto merge = [&](const char* name, Json value, const char* reason) {
    out->push_back(set_case(std::string("merge_") + name, "/model/merges/1", std::move(value),
                            {"model.merges[1]", reason}));
  };
  merge("absent_left", "zz l", "\"zz\", which is not in it");
  merge("absent_right", Json::array({"l", "zz"}), "\"zz\", which is not in it");
  merge("absent_result", "l h", "\"lh\", which is not in it");
  merge("one_token", "ll", "one space between");
  merge("three_tokens", "l l l", "one space between");
  merge("empty", "", "one space between");
  merge("triple", Json::array({"l", "l", "l"}), "a pair");
  merge("numbers", Json::array({1, 2}), "a string");
  merge("null", nullptr, "a string");
  out->push_back(
      set_case("merges_object", "/model/merges", Json::object(), {"merges", "an array"}));
  out->push_back(erase_case("no_merges", "/model", "merges"));
}

void add_pipeline(std::vector<MalformedCase>* out) {
  const std::string split = "/pre_tokenizer/pretokenizers/0/";
  const auto pattern = [&](const char* name, const char* regex, std::vector<std::string> says) {
    says.insert(says.begin(), "pattern.Regex");
    out->push_back(
        set_case(std::string("regex_") + name, split + "pattern/Regex", regex, std::move(says)));
  };
  pattern("bomb", "^hello (a|aa)+$", {"bounded time"});
  pattern("nested_bomb", "hello (?:(?:a*)*)*[bc]$", {"bounded time"});
  pattern("unclosed", "(", {"a valid regular expression"});
  pattern("nesting", std::string(2000, '(').c_str(), {"a valid regular expression"});
  pattern("too_large", "(?:(?:(?:a{1000}){1000}){1000})", {"a valid regular expression"});
  pattern("empty", "", {"not empty"});
  pattern("class_and", "[a-z&&b]", {"set operations"});
  pattern("class_nested", "[a[bc]]", {"set operations"});
  out->push_back(
      set_case("regex_long", split + "pattern/Regex", std::string(100'000, 'a'), {"65536 bytes"}));
  out->push_back(set_case("split_no_pattern", split + "pattern", Json::object(), {"pattern"}));
  out->push_back(
      set_case("split_behavior", split + "behavior", "Sideways", {"behavior", "Isolated"}));
  out->push_back(set_case("pre_unknown", split + "type", "Whitespace", {"type", "ByteLevel"}));
  out->push_back(set_case("pre_null", "/pre_tokenizer", nullptr, {"pre_tokenizer", "ByteLevel"}));
  out->push_back(set_case("pre_empty", "/pre_tokenizer/pretokenizers", Json::array(),
                          {"pre_tokenizer", "ByteLevel"}));
  out->push_back(json_case("pre_after_byte_level",
                           [](Json* t) {
                             Json& list = (*t)["pre_tokenizer"]["pretokenizers"];
                             list.push_back(list[0]);
                           },
                           {"pretokenizers[2]", "nothing after ByteLevel"}));
  out->push_back(
      set_case("normalizer_unknown", "/normalizer/type", "Lowercase", {"normalizer.type", "NFC"}));
  out->push_back(set_case("normalizer_string", "/normalizer", "NFC", {"normalizer", "an object"}));
  out->push_back(erase_case("no_decoder", "", "decoder"));
  out->push_back(set_case("decoder_null", "/decoder", nullptr, {"decoder", "an object"}));
  out->push_back(
      set_case("decoder_unknown", "/decoder/type", "WordPiece", {"decoder", "ByteLevel"}));
  out->push_back(
      set_case("truncation", "/truncation", {{"max_length", 5}}, {"truncation", "null"}));
  out->push_back(set_case("padding", "/padding", {{"length", 5}}, {"padding", "null"}));
}

void add_specials(std::vector<MalformedCase>* out) {
  const std::string first = "/added_tokens/0/";
  out->push_back(set_case("added_id_negative", first + "id", -1, {"added_tokens[0].id", "from 0"}));
  out->push_back(
      set_case("added_id_2_31", first + "id", uint64_t{1} << 31, {"added_tokens[0].id", "from 0"}));
  out->push_back(set_case("added_id_gap", first + "id", 300, {"added_tokens", "without a gap"}));
  out->push_back(set_case("added_id_taken", first + "id", 5, {"added_tokens", "every id once"}));
  out->push_back(set_case("added_contradicts_vocab", first + "content", "hell",
                          {"added_tokens[0].id", "id 258"}));
  out->push_back(set_case("added_empty", first + "content", "", {"content", "not empty"}));
  out->push_back(
      set_case("added_long", first + "content", std::string(5000, 'x'), {"content", "4096 bytes"}));
  out->push_back(
      set_case("added_object", "/added_tokens", Json::object(), {"added_tokens", "an array"}));
  out->push_back(set_case("added_flag_number", first + "special", 1, {"special", "true or false"}));
  out->push_back(json_case("added_twice",
                           [](Json* t) { (*t)["added_tokens"].push_back((*t)["added_tokens"][0]); },
                           {"added_tokens[1].id", "no other"}));
  const Json pieces = Json::array({{{"SpecialToken", {{"id", "<|bos|>"}, {"type_id", 0}}}},
                                   {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}});
  const Json post = {{"type", "TemplateProcessing"},
                     {"single", pieces},
                     {"pair", Json::array()},
                     {"special_tokens", Json::object()}};
  out->push_back(set_case("template_token_absent", "/post_processor", post,
                          {"special_tokens.<|bos|>", "the special token"}));
  Json bad_id = post;
  bad_id["special_tokens"]["<|bos|>"] = {{"id", "<|bos|>"}, {"ids", {9999}}};
  out->push_back(
      set_case("template_id_absent", "/post_processor", bad_id, {"ids[0]", "from 0 to 259"}));
  Json no_text = bad_id;
  no_text["special_tokens"]["<|bos|>"]["ids"] = Json::array({1});
  no_text["single"].erase(1);
  out->push_back(
      set_case("template_without_text", "/post_processor", no_text, {"single", "Sequence"}));
  out->push_back(set_case("post_unknown", "/post_processor", {{"type", "Bert"}},
                          {"post_processor.type", "TemplateProcessing"}));
}

void add_files(std::vector<MalformedCase>* out) {
  const auto text_case = [&](const char* name, std::string text, const char* reason) {
    out->push_back({std::string("tokenizer_") + name,
                    [text](TestModel* m) { m->raw[kFile] = text; },
                    {kFile, reason}});
  };
  text_case("empty_file", "", "valid JSON");
  text_case("empty_object", "{}", "nothing");
  text_case("array", "[]", "an object");
  text_case("bad_utf8", "{\"normalizer\":\"\xf0\x28\x8c\x28\"}", "UTF-8");
  text_case("duplicate_token", R"({"model":{"vocab":{"a":0,"a":1}}})", "duplicate");
  text_case("deep", std::string(1'000'000, '['), "64 levels");
  text_case("cut_off", tiny_tokenizer().dump().substr(0, 3000), "valid JSON");
  out->push_back(
      {"tokenizer_missing", [](TestModel* m) { m->absent.push_back(kFile); }, {kFile, "none"}});
  out->push_back({"tokenizer_100_MB",
                  [](TestModel* m) {
                    m->after = [](const TempDir& d) {
                      std::filesystem::resize_file(d.file(kFile), 100'000'000);
                    };
                  },
                  {kFile, "at most 64000000 bytes"}});
}

}  // namespace

std::vector<MalformedCase> malformed_tokenizer() {
  std::vector<MalformedCase> out;
  add_vocabulary(&out);
  add_model(&out);
  add_pipeline(&out);
  add_specials(&out);
  add_files(&out);
  return out;
}

std::vector<MalformedCase> all_malformed() {
  std::vector<MalformedCase> all;
  for (const auto make : {malformed_safetensors, malformed_index, malformed_config, malformed_quant,
                          malformed_float, malformed_tokenizer}) {
    for (MalformedCase& c : make()) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace quern::smoke::test
