#pragma once

#include <functional>
#include <ostream>
#include <string>

namespace quern::smoke {

/// A file to write results to when the work is done. The constructor makes sure that it can be
/// written, so that a bad path fails before the work and not after it; `write` puts the content
/// into a temporary file beside it and renames that, so that the file is there whole or not at all.
/// Devices and FIFOs are written as they are.
class OutputFile {
 public:
  /// Throws InputError naming `option` and the path.
  OutputFile(std::string option, std::string path);

  const std::string& path() const noexcept { return path_; }
  void write(const std::function<void(std::ostream&)>& content) const;
  void write(const std::string& text) const;

 private:
  [[noreturn]] void fail(int error) const;

  std::string option_, path_;
  std::string target_;  ///< what the path's links lead to
  bool in_place_ = false;
};

}  // namespace quern::smoke
