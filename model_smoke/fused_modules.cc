#include "model_smoke/fused_modules.h"

#include <algorithm>

namespace quern::smoke {

std::vector<std::string> shards_of(std::string_view module) {
  struct Join {
    std::string_view name;
    std::vector<std::string_view> shards;
  };
  static const std::vector<Join> joins = {
      {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"gate_up_proj", {"gate_proj", "up_proj"}},
      {"in_proj_qkvz", {"in_proj_qkv", "in_proj_z"}},
      {"in_proj_ba", {"in_proj_b", "in_proj_a"}},
      {"fused_qkv_a_proj_with_mqa", {"q_a_proj", "kv_a_proj_with_mqa"}},
  };
  const size_t dot = module.rfind('.');
  const size_t last = dot == std::string_view::npos ? 0 : dot + 1;
  std::vector<std::string> out;
  for (const Join& join : joins) {
    if (module.substr(last) != join.name) continue;
    for (const std::string_view shard : join.shards) {
      out.push_back(std::string(module.substr(0, last)) + std::string(shard));
    }
  }
  return out;
}

Exclusion exclusion_of(std::string_view module, const ModuleList& excluded) {
  if (excluded.find(module) != nullptr) return Exclusion::kExcluded;
  const std::vector<std::string> shards = shards_of(module);
  const auto listed = [&](const std::string& s) { return excluded.find(s) != nullptr; };
  const auto count = std::count_if(shards.begin(), shards.end(), listed);
  if (count == 0) return Exclusion::kQuantized;
  return count == static_cast<std::ptrdiff_t>(shards.size()) ? Exclusion::kExcluded
                                                             : Exclusion::kPerShard;
}

}  // namespace quern::smoke
