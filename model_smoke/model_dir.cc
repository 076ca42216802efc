#include "model_smoke/model_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr int kMaxLinks = 40;  // what Linux itself follows before ELOOP

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "another kind of file";
}

std::vector<std::string> components_of(std::string_view path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t slash = path.find('/', begin);
    parts.emplace_back(path.substr(begin, slash - begin));
    if (slash == std::string_view::npos) return parts;
    begin = slash + 1;
  }
}

// One resolution of one name, component by component. `pending_` is what is still to walk, next
// component last; `open_` are the directories below the root that lead to here.
class Walk {
 public:
  Walk(int root, const std::string& dir, std::string_view name)
      : root_(root), dir_(dir), name_(name) {}

  // The open file, or -1 when nothing of that name is there.
  int run() {
    check_name();
    push(components_of(name_));
    while (!pending_.empty()) {
      const std::string part = std::move(pending_.back());
      pending_.pop_back();
      if (part.empty() || part == ".") continue;
      if (part == "..") {
        if (open_.empty()) fail("a symbolic link that stays inside", "one that leaves it");
        open_.pop_back();
        continue;
      }
      struct stat st;
      if (fstatat(here(), part.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return -1;
        fail("a readable file", strerror(errno));
      }
      if (S_ISLNK(st.st_mode)) {
        follow(part);
      } else if (pending_.empty()) {
        return open_last(part, st);
      } else {
        enter(part, st);
      }
    }
    fail("a regular file", "a directory");
  }

 private:
  [[noreturn]] void fail(std::string_view expected, std::string_view got,
                         std::string_view hint = {}) const {
    throw InputError(dir_, name_, expected, got, hint);
  }

  void check_name() const {
    if (name_.empty()) fail("a file name", "an empty name");
    if (name_.size() > kMaxNameBytes) fail("a name of at most 4096 bytes", "a longer one");
    if (name_.find('\0') != std::string_view::npos) fail("a name without NUL", "one with NUL");
    if (name_.front() == '/') fail("a name relative to the model directory", "an absolute path");
    for (const std::string& part : components_of(name_)) {
      if (part == "..") fail("a name inside the model directory", "a \"..\" component");
      if (part == "." || part.empty()) {
        fail("a plain relative name", part.empty() ? "an empty component" : "a \".\" component");
      }
    }
  }

  int here() const { return open_.empty() ? root_ : open_.back().get(); }

  void push(std::vector<std::string> parts) {
    for (auto it = parts.rbegin(); it != parts.rend(); ++it) pending_.push_back(std::move(*it));
  }

  void follow(const std::string& part) {
    if (++links_ > kMaxLinks) fail("at most 40 symbolic links", "more (a loop?)");
    std::string target(kMaxNameBytes + 1, '\0');
    const ssize_t n = readlinkat(here(), part.c_str(), target.data(), target.size());
    if (n < 0) fail("a readable link", strerror(errno));
    if (n == 0 || static_cast<size_t>(n) > kMaxNameBytes) {
      fail("a link target of 1 to 4096 bytes", std::to_string(n));
    }
    target.resize(static_cast<size_t>(n));
    if (target.front() == '/') {
      fail("a symbolic link that stays inside", "a link to the absolute path " + target,
           "copy the files into one directory: cp -rL");
    }
    push(components_of(target));
  }

  void enter(const std::string& part, const struct stat& st) {
    if (!S_ISDIR(st.st_mode)) fail("a directory at \"" + part + "\"", kind_of(st.st_mode));
    const int fd = openat(here(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) fail("a directory at \"" + part + "\"", strerror(errno));
    open_.emplace_back(fd);
  }

  int open_last(const std::string& part, const struct stat& st) const {
    // Looked at before it is opened, because opening a device or a FIFO can have effects; and
    // again after, because it may have been swapped in between.
    if (!S_ISREG(st.st_mode)) fail("a regular file", kind_of(st.st_mode));
    Fd fd(openat(here(), part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (fd.get() < 0) fail("a readable file", strerror(errno));
    struct stat now;
    if (fstat(fd.get(), &now) != 0) fail("a readable file", strerror(errno));
    if (!S_ISREG(now.st_mode)) fail("a regular file", kind_of(now.st_mode));
    return fd.release();
  }

  int root_;
  const std::string& dir_;
  std::string_view name_;
  std::vector<std::string> pending_;
  std::vector<Fd> open_;
  int links_ = 0;
};

}  // namespace

ModelDir::ModelDir(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw InputError(path, "", "a model directory", strerror(errno));
}

ModelDir::~ModelDir() {
  close(fd_);
}

std::string ModelDir::label(std::string_view name) const {
  return path_ + (path_.ends_with('/') ? "" : "/") + std::string(name);
}

bool ModelDir::exists(std::string_view name) const {
  const Fd fd(Walk(fd_, path_, name).run());
  return fd.get() >= 0;
}

FileMap ModelDir::open(std::string_view name) const {
  const int fd = Walk(fd_, path_, name).run();
  if (fd < 0) {
    throw InputError(path_, name, "a file of this name", "none", "is the download complete?");
  }
  return FileMap::from_fd(fd, label(name));
}

std::string ModelDir::read_text(std::string_view name, uint64_t max_bytes) const {
  const FileMap map = open(name);
  if (map.size() > max_bytes) {
    throw InputError(label(name), "", "at most " + std::to_string(max_bytes) + " bytes",
                     std::to_string(map.size()) + " bytes");
  }
  return std::string(map.text());
}

std::vector<std::string> ModelDir::list() const {
  const int copy = openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy < 0 ? nullptr : fdopendir(copy);
  if (stream == nullptr) {
    const int error = errno;
    if (copy >= 0) close(copy);
    throw InputError(path_, "", "a directory that can be listed", strerror(error));
  }
  std::unique_ptr<DIR, int (*)(DIR*)> closer(stream, closedir);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream)) names.emplace_back(entry->d_name);
  return names;
}

}  // namespace quern::smoke
