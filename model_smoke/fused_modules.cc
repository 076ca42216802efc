#include "model_smoke/fused_modules.h"

#include <algorithm>

namespace quern::smoke {
namespace {

struct Join {
  std::string_view name;
  std::vector<std::string_view> shards;
};

const std::vector<Join>& joins() {
  static const std::vector<Join> list = {
      {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"gate_up_proj", {"gate_proj", "up_proj"}},
      {"in_proj_qkvz", {"in_proj_qkv", "in_proj_z"}},
      {"in_proj_ba", {"in_proj_b", "in_proj_a"}},
      {"fused_qkv_a_proj_with_mqa", {"q_a_proj", "kv_a_proj_with_mqa"}},
  };
  return list;
}

std::string beside(std::string_view module, std::string_view name) {
  module.remove_suffix(last_part_of(module).size());
  return std::string(module) + std::string(name);
}

}  // namespace

std::string_view last_part_of(std::string_view module) noexcept {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

std::vector<std::string> shards_of(std::string_view module) {
  std::vector<std::string> out;
  for (const Join& join : joins()) {
    if (last_part_of(module) != join.name) continue;
    for (const std::string_view shard : join.shards) out.push_back(beside(module, shard));
  }
  return out;
}

std::string joined_name_of(std::string_view module) {
  const std::string_view last = last_part_of(module);
  for (const Join& join : joins()) {
    if (std::find(join.shards.begin(), join.shards.end(), last) != join.shards.end()) {
      return beside(module, join.name);
    }
  }
  return {};
}

}  // namespace quern::smoke
