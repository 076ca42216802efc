#pragma once

#include <string>
#include <string_view>

namespace quern::smoke::test {

/// A directory of its own under the system's temporary directory, removed with all it holds.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view bytes) const;

 private:
  std::string path_;
};

/// A whole file; fails the test when it cannot be read.
std::string read_file(const std::string& path);

}  // namespace quern::smoke::test
