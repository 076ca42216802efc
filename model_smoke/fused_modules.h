#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/module_pattern.h"

namespace quern::smoke {

/// The modules of a checkpoint that engines join under the name `module`, "a.qkv_proj" from
/// "a.q_proj", "a.k_proj" and "a.v_proj"; none where the name is no such join.
std::vector<std::string> shards_of(std::string_view module);

/// What a list of excluded modules says of a module, joined or not.
enum class Exclusion : unsigned char {
  kQuantized,  ///< neither the name nor any of its shards is listed
  kExcluded,   ///< the name is, or all of its shards are
  kPerShard,   ///< some are: the shards stay apart, each in its own format
};
Exclusion exclusion_of(std::string_view module, const ModuleList& excluded);

}  // namespace quern::smoke
