#include "model_smoke/generation_config.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr uint64_t kMaxConfigBytes = 16'000'000;
constexpr size_t kMaxEosIds = 256;

// An id, or a list of ids, below the vocabulary size.
std::vector<int64_t> read_ids(const JsonNode& node, int64_t vocab_size) {
  if (!node.value().is_array()) return {node.as_int(0, vocab_size - 1)};
  if (node.size() > kMaxEosIds) node.fail("at most 256 ids");
  std::vector<int64_t> ids;
  for (size_t i = 0; i < node.size(); ++i) {
    ids.push_back(node.element(i).as_int(0, vocab_size - 1));
  }
  return ids;
}

// Reads every place, also where an earlier one has answered already: a bad id is a bad file.
void read_from(const JsonNode& node, int64_t vocab_size, GenerationConfig* g) {
  if (const auto eos = node.find("eos_token_id")) {
    std::vector<int64_t> ids = read_ids(*eos, vocab_size);
    if (g->eos_token_ids.empty()) g->eos_token_ids = std::move(ids);
  }
  if (const auto bos = node.find("bos_token_id")) {
    const int64_t id = bos->as_int(0, vocab_size - 1);
    if (!g->bos_token_id) g->bos_token_id = id;
  }
}

}  // namespace

bool GenerationConfig::is_eos(int64_t id) const {
  return std::find(eos_token_ids.begin(), eos_token_ids.end(), id) != eos_token_ids.end();
}

GenerationConfig load_generation_config(const ModelDir& dir, const ModelConfig& config) {
  GenerationConfig g;
  if (dir.exists("generation_config.json")) {
    const std::string file = dir.label("generation_config.json");
    const Json json = parse_json(dir.read_text("generation_config.json", kMaxConfigBytes), file);
    read_from(JsonNode(json, file, ""), config.vocab_size, &g);
  }
  const std::string file = dir.label("config.json");
  const Json json = parse_json(dir.read_text("config.json", kMaxConfigBytes), file);
  const JsonNode root(json, file, "");
  if (const auto text = root.find("text_config")) read_from(*text, config.vocab_size, &g);
  read_from(root, config.vocab_size, &g);
  return g;
}

}  // namespace quern::smoke
