#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quern::smoke {

/// The bytes of a regular file, read-only: mapped, or read into memory where the file system
/// refuses mappings (ENODEV on some network and FUSE mounts).
///
/// A file that shrinks while it is mapped makes the kernel raise SIGBUS at the lost pages. We do
/// not handle that signal: `check_unchanged` compares size and modification time again, and
/// callers do so before a long pass over the data, which turns the usual case (an interrupted
/// download restarted, a file replaced in place) into an InputError. A file cut between the check
/// and the access still ends the process.
class FileMap {
 public:
  enum class Method { kMapElseRead, kRead };

  /// Takes over `fd`, which must be a regular file. `name` is what messages call it.
  static FileMap from_fd(int fd, std::string name, Method method = Method::kMapElseRead);
  /// Opens a file the user named on the command line (never a name that came out of a file:
  /// those go through ModelDir).
  static FileMap open_user_file(const std::string& path, Method method = Method::kMapElseRead);

  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  ~FileMap();

  const std::byte* data() const noexcept { return data_; }
  uint64_t size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }
  bool is_mapped() const noexcept { return mapped_; }
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)};
  }

  /// Throws InputError when size or modification time are no longer those seen at opening.
  void check_unchanged() const;

 private:
  FileMap() = default;
  void release() noexcept;
  void read_all();

  int fd_ = -1;
  std::string name_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t mtime_ns_ = 0;
  bool mapped_ = false;
  std::vector<std::byte> copy_;
};

}  // namespace quern::smoke
