#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/model_dir.h"
#include "model_smoke/safetensors.h"
#include "model_smoke/tensor_values.h"

namespace quern::smoke {

/// What of a tensor says that it may be broken, for warnings.
enum class Content : uint8_t {
  kNumbers,  ///< a row of one value, or a whole tensor
  kScales,   ///< a row of zeros, or a whole tensor of one value
  kPacked,   ///< a whole tensor of one value: its rows are no rows of a matrix
  kIndices,  ///< nothing: zeros and indices of groups may be alike
};

/// All tensors of a model directory: `model.safetensors`, or `model.safetensors.index.json` with
/// its shards. Every tensor is taken exactly once or ignored with a reason; `require_all_consumed`
/// says which were forgotten. Values are checked as tensors are taken: NaN and infinity throw,
/// a constant tensor gives a warning, and so do constant rows.
class Checkpoint {
 public:
  static Checkpoint open(const ModelDir& dir);

  /// Looks without taking; null when there is none.
  const TensorView* find(std::string_view name) const noexcept;
  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }

  /// Takes a tensor: must exist, must not have been taken or ignored before, must hold finite
  /// values.
  TensorView get(std::string_view name, Content content = Content::kNumbers);
  /// As `get`, and the shape must be this one.
  TensorView get(std::string_view name, std::initializer_list<int64_t> shape);

  /// Leaves a tensor out, for a reason that `ignored` reports.
  void ignore(std::string_view name, std::string reason);
  /// The same for all whose name starts with `prefix`; how many there were.
  size_t ignore_prefix(std::string_view prefix, const std::string& reason);

  std::vector<std::string> unconsumed() const;
  /// Throws InputError listing the tensors that were neither taken nor ignored.
  void require_all_consumed() const;

  /// All names, sorted.
  std::vector<std::string> names() const;
  struct Ignored {
    std::string name, reason;
    uint64_t bytes;
  };
  std::vector<Ignored> ignored() const;
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  /// What to name in a message about the whole: the index, or the single file.
  const std::string& source() const noexcept { return source_; }
  size_t file_count() const noexcept { return files_.size(); }
  uint64_t file_bytes() const noexcept;
  void check_unchanged() const;

 private:
  enum class Use : uint8_t { kNone, kTaken, kIgnored };
  struct Entry {
    const TensorView* tensor = nullptr;
    const SafetensorsFile* file = nullptr;
    Use use = Use::kNone;
    std::string reason;
  };
  Checkpoint() = default;
  void add_file(std::unique_ptr<SafetensorsFile> file);
  void open_shards(const ModelDir& dir);
  Entry& entry_to_use(std::string_view name);
  void warn_of_blanks(const TensorView& tensor, Content content);

  std::string source_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> warnings_;
};

}  // namespace quern::smoke
