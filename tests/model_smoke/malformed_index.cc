// reliability.md 5.2 "Index"; bug log T05, F05, F06, F15.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/model_smoke/malformed_case.h"

namespace quern::smoke::test {
namespace {

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kNorm[] = "model.norm.weight";

// Two shards, then `bend` changes the index.
MalformedCase index_case(std::string name, std::function<void(TestModel*, Json*)> bend,
                         std::vector<std::string> says) {
  return {std::move(name),
          [bend](TestModel* m) {
            Json index = m->shard(2);
            bend(m, &index);
            m->raw[kIndex] = index.dump();
          },
          std::move(says)};
}

// model.norm.weight is said to live in the file `target`.
MalformedCase name_case(std::string name, std::string target, std::vector<std::string> says,
                        std::function<void(const TempDir&)> after = {}) {
  return index_case(
      "index_name_" + name,
      [target, after](TestModel* m, Json* index) {
        (*index)["weight_map"][kNorm] = target;
        m->after = after;
      },
      std::move(says));
}

void add_names(std::vector<MalformedCase>* out) {
  out->push_back(name_case("parent", "../x.safetensors", {"../x.safetensors", "\"..\""}));
  out->push_back(name_case("absolute", "/etc/passwd", {"/etc/passwd", "absolute"}));
  out->push_back(name_case("hidden_parent", "a/../../x", {"a/../../x", "\"..\""}));
  out->push_back(name_case("inner_parent", "a/../model.safetensors", {"\"..\""}));
  out->push_back(name_case("empty", "", {"empty name"}));
  out->push_back(name_case("dot", ".", {"\".\" component"}));
  out->push_back(name_case("dot_slash", "./x", {"\".\" component"}));
  out->push_back(name_case("double_slash", "a//x", {"empty component"}));
  out->push_back(name_case("trailing_slash", "a/", {"empty component"}));
  out->push_back(name_case("nul", std::string("x\0y", 3), {"NUL"}));
  out->push_back(name_case("long", std::string(5000, 'x'), {"4096 bytes"}));
  out->push_back(name_case("missing", "model-00009-of-00002.safetensors",
                           {"model-00009-of-00002.safetensors", "none", "download complete"}));
  out->push_back(name_case("directory", "sub", {"sub", "a directory"}, [](const TempDir& d) {
    std::filesystem::create_directory(d.file("sub"));
  }));
  out->push_back(name_case("fifo", "pipe", {"pipe", "a FIFO"}, [](const TempDir& d) {
    if (mkfifo(d.file("pipe").c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
  }));
  const auto link = [](std::string to) {
    return [to](const TempDir& d) { std::filesystem::create_symlink(to, d.file("link")); };
  };
  out->push_back(
      name_case("link_absolute", "link", {"link", "absolute path"}, link("/etc/passwd")));
  out->push_back(name_case("link_device", "link", {"link", "absolute path"}, link("/dev/zero")));
  out->push_back(name_case("link_out", "link", {"link", "stays inside"}, link("../../etc/passwd")));
  out->push_back(name_case("link_loop", "link", {"link", "40 symbolic links"}, link("link")));
  out->push_back(name_case("link_dangling", "link", {"link", "none"}, link("nowhere")));
  out->push_back(name_case("link_to_here", "link", {"link", "a directory"}, link(".")));
  out->push_back(name_case("below_link_out", "link/passwd", {"link/passwd", "stays inside"},
                           link("../../../../etc")));
  out->push_back(name_case("below_a_file", "config.json/x", {"config.json"}));
}

void add_maps(std::vector<MalformedCase>* out) {
  const auto text_case = [&](std::string name, std::string text, std::vector<std::string> says) {
    says.insert(says.begin(), kIndex);
    out->push_back({"index_" + name,
                    [text](TestModel* m) {
                      m->shard(2);
                      m->raw[kIndex] = text;
                    },
                    std::move(says)});
  };
  text_case("empty_file", "", {"valid JSON"});
  text_case("not_an_object", "[1]", {"an object"});
  text_case("no_weight_map", "{}", {"weight_map", "nothing"});
  text_case("weight_map_array", R"({"weight_map":[]})", {"weight_map", "an object"});
  text_case("weight_map_null", R"({"weight_map":null})", {"weight_map", "null"});
  text_case("weight_map_empty", R"({"weight_map":{}})", {"weight_map", "at least one"});
  text_case("value_number", R"({"weight_map":{"a":1}})", {"weight_map.a", "a string"});
  text_case("duplicate_key", R"({"weight_map":{"a":"x","a":"y"}})", {"weight_map.a", "duplicate"});
  text_case("deep", "{\"weight_map\":" + std::string(100'000, '['), {"64 levels"});
  text_case("trailing", "{} {}", {"valid JSON"});
  std::string many = R"({"weight_map":{"t0":"f0")";
  for (int i = 1; i < 20'000; ++i) {
    many += ",\"t" + std::to_string(i) + "\":\"f" + std::to_string(i) + "\"";
  }
  text_case("20000_shards", many + "}}", {"4096 distinct files"});
}

void add_contents(std::vector<MalformedCase>* out) {
  out->push_back(index_case(
      "index_name_not_in_shard",
      [](TestModel*, Json* index) { (*index)["weight_map"]["model.ghost.weight"] = kFirst; },
      {kIndex, "model.ghost.weight", kFirst, "no such tensor"}));
  out->push_back(index_case("index_wrong_shard",
                            [](TestModel*, Json* index) {
                              Json& at = (*index)["weight_map"][kNorm];
                              at = at == kFirst ? "model-00002-of-00002.safetensors" : kFirst;
                            },
                            {kNorm}));
  out->push_back(index_case("index_tensor_not_in_map",
                            [](TestModel*, Json* index) { (*index)["weight_map"].erase(kNorm); },
                            {kNorm, "weight_map"}));
  out->push_back(index_case("index_tensor_in_two_shards",
                            [](TestModel* m, Json*) {
                              std::vector<TestTensor> all = m->tensors;
                              m->raw[kFirst] = safetensors_bytes(all);
                            },
                            {kFirst, "weight_map"}));
  out->push_back(index_case("index_shard_not_listed",
                            [](TestModel* m, Json*) {
                              m->raw["model-00003-of-00003.safetensors"] =
                                  safetensors_bytes({m->tensors[0]});
                            },
                            {kIndex, "model-00003-of-00003.safetensors"}));
  out->push_back(index_case("index_bad_shard",
                            [](TestModel* m, Json*) { m->raw[kFirst].pop_back(); }, {kFirst}));
  out->push_back({"no_weights",
                  [](TestModel* m) { m->absent.push_back("model.safetensors"); },
                  {"model.safetensors", "neither"}});
  out->push_back({"missing_tensor",
                  [](TestModel* m) {
                    std::erase_if(m->tensors, [](const TestTensor& t) { return t.name == kNorm; });
                  },
                  {kNorm, "none"}});
  out->push_back({"left_over_tensor",
                  [](TestModel* m) {
                    m->tensors.push_back({"model.extra", "U8", {1}, "x"});
                  },
                  {"model.extra", "left over"}});
}

}  // namespace

std::vector<MalformedCase> malformed_index() {
  std::vector<MalformedCase> out;
  add_names(&out);
  add_maps(&out);
  add_contents(&out);
  return out;
}

}  // namespace quern::smoke::test
