// Which modules the lists of a quantization config leave out, joined ones too.
#include <nlohmann/json.hpp>

#include "model_smoke/fused_modules.h"
#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {

const std::string* QuantConfig::entry_for(std::string_view module) const {
  if (const ModulePattern* p = ignore_.find(module)) return &p->text();
  if (const Rule* rule = rule_of(module); rule != nullptr && rule->excludes) return &rule->text;
  for (const std::string& part : substrings_) {
    if (has_part(module, part)) return &part;
  }
  return nullptr;
}

// A pattern must spell the join out: "*in_proj_qkv*" is about one shard of in_proj_qkvz.
const std::string* QuantConfig::entry_for_join_of(std::string_view module) const {
  const std::string joined = joined_name_of(module);
  if (joined.empty()) return nullptr;
  const std::string_view name = last_part_of(joined);
  if (const ModulePattern* p = ignore_.find(joined, name)) return &p->text();
  for (const std::string& part : substrings_) {
    if (part.find(name) != std::string::npos && has_part(joined, part)) return &part;
  }
  return nullptr;
}

const std::string* QuantConfig::excluded_by(std::string_view module) const {
  if (const std::string* entry = entry_for(module)) return entry;
  if (const std::string* entry = entry_for_join_of(module)) return entry;
  const std::string* listed = nullptr;
  std::string first_listed, first_other;
  for (const std::string& shard : shards_of(module)) {
    const std::string* entry = entry_for(shard);
    if (entry != nullptr) listed = entry;
    std::string& first = entry != nullptr ? first_listed : first_other;
    if (first.empty()) first = shard;
  }
  if (listed != nullptr && !first_other.empty()) {
    throw InputError(file_, at_ + "." + ignore_key_,
                     "all or none of what is joined as " + std::string(module),
                     first_listed + " but not " + first_other,
                     "parts in formats of their own must be tensors of their own");
  }
  return listed;
}

}  // namespace quern::smoke
