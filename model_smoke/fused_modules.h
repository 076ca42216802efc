#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quern::smoke {

/// The modules of a checkpoint that engines join under the name `module`, "a.qkv_proj" from
/// "a.q_proj", "a.k_proj" and "a.v_proj"; none where the name is no such join.
std::vector<std::string> shards_of(std::string_view module);

/// The name that `module` is joined under, "a.qkv_proj" for "a.k_proj"; empty where there is none.
std::string joined_name_of(std::string_view module);

/// The last part of a name.
std::string_view last_part_of(std::string_view module) noexcept;

}  // namespace quern::smoke
