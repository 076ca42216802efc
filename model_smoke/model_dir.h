#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_smoke/file_map.h"

namespace quern::smoke {

/// A model directory, held open. Every file of a checkpoint is reached through `open`, the one
/// function of the tree that turns a name into a file: names come out of untrusted index files.
///
/// A name is relative, non-empty, at most 4096 bytes, without NUL, "." or ".." components. It is
/// walked one component at a time from the directory handle without letting the kernel follow
/// links; symbolic links are followed by hand, must be relative and must stay inside. What it ends
/// at must be a regular file. Anything else throws InputError.
class ModelDir {
 public:
  explicit ModelDir(const std::string& path);
  ModelDir(const ModelDir&) = delete;
  ModelDir& operator=(const ModelDir&) = delete;
  ~ModelDir();

  /// What messages call the directory.
  const std::string& path() const noexcept { return path_; }
  /// What messages call a file in it. For messages only: files are opened by name.
  std::string label(std::string_view name) const;

  /// False only when nothing of that name is there; a name that breaks the rules throws.
  bool exists(std::string_view name) const;
  FileMap open(std::string_view name) const;
  /// A whole small file. Longer than `max_bytes` is an InputError.
  std::string read_text(std::string_view name, uint64_t max_bytes) const;
  /// Names of the entries of the directory itself, in no order.
  std::vector<std::string> list() const;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace quern::smoke
