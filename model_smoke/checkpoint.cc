#include "model_smoke/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/json_file.h"
#include "model_smoke/tensor_values.h"

namespace quern::smoke {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 100'000'000;
// The largest published checkpoints have a few hundred; each costs an open file.
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxListed = 20;

// "a, b, c and 17 more"
std::string list_text(const std::vector<std::string>& names) {
  std::string s;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) s += (i ? ", " : "") + names[i];
  if (names.size() > kMaxListed) {
    s += " and " + std::to_string(names.size() - kMaxListed) + " more";
  }
  return s;
}

// Shard file -> tensors the index expects in it, sorted.
using ShardMap = std::map<std::string, std::vector<std::string>>;

ShardMap read_weight_map(const JsonNode& index) {
  const JsonNode map = index.at("weight_map", "an object from tensor to file");
  map.require_object();
  if (map.size() == 0) map.fail("at least one tensor");
  ShardMap shards;
  for (const auto& [name, file] : map.value().items()) {
    const JsonNode node(file, index.file(), "weight_map." + name);
    shards[node.as_string()].push_back(name);
    if (shards.size() > kMaxShards) {
      node.fail("at most " + std::to_string(kMaxShards) + " distinct files");
    }
  }
  return shards;
}

// The file holds what the index says, and nothing else. `names` are sorted.
void check_shard(const SafetensorsFile& file, const std::string& shard,
                 const std::vector<std::string>& names, const std::string& index) {
  for (const std::string& name : names) {
    if (file.find(name) != nullptr) continue;
    throw InputError(index, "weight_map." + name, "a tensor of " + shard,
                     "no such tensor in that file", "is the download complete?");
  }
  if (file.tensors().size() == names.size()) return;
  for (const TensorView& t : file.tensors()) {
    if (std::binary_search(names.begin(), names.end(), t.name)) continue;
    throw InputError(file.file(), t.name, "a tensor that weight_map puts into this file",
                     "none of that name in " + index);
  }
}

// "model-00002-of-00003.safetensors"
bool is_shard_name(const std::string& name) {
  return name.starts_with("model-") && name.find("-of-") != std::string::npos &&
         name.ends_with(".safetensors");
}

void refuse_unlisted_shards(const ModelDir& dir, const ShardMap& shards, const std::string& index) {
  std::vector<std::string> extra;
  for (const std::string& name : dir.list()) {
    if (is_shard_name(name) && !shards.contains(name)) extra.push_back(name);
  }
  if (extra.empty()) return;
  std::sort(extra.begin(), extra.end());
  throw InputError(index, "weight_map", "every shard of the directory to be named",
                   "no entry for " + list_text(extra), "left over from another download?");
}

}  // namespace

Checkpoint Checkpoint::open(const ModelDir& dir) {
  Checkpoint c;
  const bool single = dir.exists(kSingle);
  if (dir.exists(kIndex) && !single) {
    c.source_ = dir.label(kIndex);
    c.open_shards(dir);
    return c;
  }
  if (!single) {
    throw InputError(dir.path(), "", std::string(kSingle) + " or " + kIndex, "neither",
                     "is the download complete?");
  }
  c.source_ = dir.label(kSingle);
  if (dir.exists(kIndex)) {
    c.warn(dir.label(kIndex) + ": not read, because " + kSingle + " is there as well");
  }
  c.add_file(std::make_unique<SafetensorsFile>(dir.open(kSingle)));
  return c;
}

void Checkpoint::add_file(std::unique_ptr<SafetensorsFile> file) {
  for (const TensorView& t : file->tensors()) {
    const auto [it, inserted] = entries_.try_emplace(t.name);
    if (!inserted) {
      throw InputError(file->file(), t.name, "every tensor in one file only",
                       "it is also in " + std::string(it->second.tensor->file));
    }
    it->second.tensor = &t;
    it->second.file = file.get();
  }
  files_.push_back(std::move(file));
}

void Checkpoint::open_shards(const ModelDir& dir) {
  const std::string text = dir.read_text(kIndex, kMaxIndexBytes);
  const Json json = parse_json(text, source_);
  const JsonNode index(json, source_, "");
  const ShardMap shards = read_weight_map(index);
  // Every name is resolved before any content is judged: a name that leaves the directory is the
  // first thing to hear of.
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (const auto& [shard, names] : shards) {
    files.push_back(std::make_unique<SafetensorsFile>(dir.open(shard)));
  }
  size_t i = 0;
  for (const auto& [shard, names] : shards) {
    check_shard(*files[i], shard, names, source_);
    add_file(std::move(files[i++]));
  }
  refuse_unlisted_shards(dir, shards, source_);
  const auto metadata = index.find("metadata");
  if (!metadata || !metadata->value().is_object() || !metadata->has("total_size")) return;
  uint64_t total = 0;
  for (const auto& [name, entry] : entries_) total += entry.tensor->bytes;
  const Json& stated = metadata->at("total_size").value();
  if (!stated.is_number() || stated.get<double>() != static_cast<double>(total)) {
    warn(source_ + ": metadata.total_size: expected " + std::to_string(total) + ", got " +
         describe(stated));
  }
}

const TensorView* Checkpoint::find(std::string_view name) const noexcept {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : it->second.tensor;
}

Checkpoint::Entry& Checkpoint::entry_to_use(std::string_view name) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    throw InputError(source_, name, "a tensor of this name",
                     "none among " + std::to_string(entries_.size()) + " in " +
                         std::to_string(files_.size()) + " files",
                     "is the download complete, and is this the architecture of config.json?");
  }
  Entry& entry = it->second;
  if (entry.use != Use::kNone) {
    throw InputError(
        entry.file->file(), name, "a tensor to be used once",
        entry.use == Use::kTaken ? "a second use" : "a use after it was ignored: " + entry.reason);
  }
  return entry;
}

TensorView Checkpoint::get(std::string_view name, Content content) {
  Entry& entry = entry_to_use(name);
  entry.use = Use::kTaken;
  entry.file->check_unchanged();
  const TensorView& t = *entry.tensor;
  const int64_t bad = first_non_finite(t);
  if (bad >= 0) {
    throw InputError(
        entry.file->file(), name, "finite values",
        value_text(t, bad) + " at index " + std::to_string(bad) + " of " + describe(t));
  }
  warn_of_blanks(t, content);
  return t;
}

void Checkpoint::warn_of_blanks(const TensorView& t, Content content) {
  if (content == Content::kIndices) return;
  const std::string at = std::string(t.file) + ": " + t.name + ": ";
  if (is_constant(t)) {
    warn(at + "all " + std::to_string(t.elements()) + " values are " + value_text(t, 0));
  } else if (content != Content::kPacked) {
    const BlankRows blank = blank_rows(t, content == Content::kScales);
    if (blank.count > 0) warn(at + blank_rows_text(blank, rows_of(t)));
  }
}

TensorView Checkpoint::get(std::string_view name, std::initializer_list<int64_t> shape) {
  const TensorView* t = find(name);
  if (t != nullptr && !std::equal(t->shape.begin(), t->shape.end(), shape.begin(), shape.end())) {
    throw InputError(t->file, name, "shape " + shape_text(shape), describe(*t),
                     "config.json and the tensor disagree");
  }
  return get(name);
}

void Checkpoint::ignore(std::string_view name, std::string reason) {
  Entry& entry = entry_to_use(name);
  entry.use = Use::kIgnored;
  entry.reason = std::move(reason);
}

size_t Checkpoint::ignore_prefix(std::string_view prefix, const std::string& reason) {
  size_t n = 0;
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && it->first.starts_with(prefix); ++it) {
    ignore(it->first, reason);
    ++n;
  }
  return n;
}

std::vector<std::string> Checkpoint::unconsumed() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.use == Use::kNone) names.push_back(name);
  }
  return names;
}

void Checkpoint::require_all_consumed() const {
  const std::vector<std::string> rest = unconsumed();
  if (rest.empty()) return;
  throw InputError(source_, rest.front(), "every tensor to be used or ignored for a reason",
                   std::to_string(rest.size()) + " left over: " + list_text(rest),
                   "config.json and the files disagree");
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::vector<Checkpoint::Ignored> Checkpoint::ignored() const {
  std::vector<Ignored> list;
  for (const auto& [name, entry] : entries_) {
    if (entry.use == Use::kIgnored) list.push_back({name, entry.reason, entry.tensor->bytes});
  }
  return list;
}

uint64_t Checkpoint::file_bytes() const noexcept {
  uint64_t total = 0;
  for (const auto& file : files_) total += file->file_bytes();
  return total;
}

void Checkpoint::check_unchanged() const {
  for (const auto& file : files_) file->check_unchanged();
}

}  // namespace quern::smoke
