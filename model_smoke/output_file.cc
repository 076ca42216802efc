#include "model_smoke/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

/// The file at the end of the links, so that a rename replaces it and not the link to it.
std::string resolved(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;  // not there yet
  std::string out(real);
  std::free(real);
  return out;
}

bool same_file(const struct stat& a, int fd) {
  struct stat b;
  return fstat(fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// The process's own, so that two runs that write the same file do not meet in it.
std::string temporary_name(const std::string& target) {
  return target + ".tmp" + std::to_string(getpid());
}

}  // namespace

OutputFile::OutputFile(std::string option, std::string path)
    : option_(std::move(option)), path_(std::move(path)), target_(resolved(path_)) {
  if (path_.empty()) fail(ENOENT);
  struct stat st;
  if (stat(path_.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) fail(EISDIR);
    if (access(path_.c_str(), W_OK) != 0) fail(errno);
    // /dev/stdout may lead to a regular file: renaming over it would cut off what is printed.
    in_place_ =
        !S_ISREG(st.st_mode) || same_file(st, STDOUT_FILENO) || same_file(st, STDERR_FILENO);
    if (in_place_) return;
  }
  const std::string probe = temporary_name(target_);
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail(errno);
  close(fd);
  unlink(probe.c_str());
}

void OutputFile::fail(int error) const {
  throw InputError(option_, path_, "a file that can be written", std::strerror(error));
}

void OutputFile::write(const std::function<void(std::ostream&)>& content) const {
  const std::string name = in_place_ ? path_ : temporary_name(target_);
  // A device has nothing to cut off, and standard output goes on behind what is there.
  std::ofstream out(name, std::ios::binary | (in_place_ ? std::ios::app : std::ios::trunc));
  content(out);
  out.close();
  if (out && (in_place_ || std::rename(name.c_str(), target_.c_str()) == 0)) return;
  const int error = errno;
  if (!in_place_) unlink(name.c_str());
  fail(error);
}

void OutputFile::write(const std::string& text) const {
  write([&text](std::ostream& out) { out << text; });
}

}  // namespace quern::smoke
