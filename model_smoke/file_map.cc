#include "model_smoke/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

int64_t mtime_ns(const struct stat& st) {
  return static_cast<int64_t>(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec;
}

// Errors with which file systems and sandboxes refuse a mapping that read() would still serve.
bool read_instead(int error) {
  return error == ENODEV || error == EACCES || error == EPERM || error == ENOSYS;
}

}  // namespace

FileMap FileMap::from_fd(int fd, std::string name, Method method) {
  FileMap map;
  map.fd_ = fd;
  map.name_ = std::move(name);
  struct stat st;
  if (fstat(fd, &st) != 0) throw InputError(map.name_, "", "a readable file", strerror(errno));
  if (!S_ISREG(st.st_mode)) {
    throw InputError(map.name_, "", "a regular file", "another kind of file");
  }
  map.size_ = static_cast<uint64_t>(st.st_size);
  map.mtime_ns_ = mtime_ns(st);
  if (map.size_ == 0) return map;  // mmap refuses length 0
  if (method == Method::kMapElseRead) {
    void* p = mmap(nullptr, map.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p != MAP_FAILED) {
      map.data_ = static_cast<const std::byte*>(p);
      map.mapped_ = true;
      return map;
    }
    if (!read_instead(errno)) {
      throw InputError(map.name_, "", "a file that can be mapped", strerror(errno));
    }
  }
  map.read_all();
  return map;
}

FileMap FileMap::open_user_file(const std::string& path, Method method) {
  // O_NONBLOCK: opening a FIFO by mistake must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw InputError(path, "", "a readable file", strerror(errno));
  return from_fd(fd, path, method);
}

void FileMap::read_all() {
  copy_.resize(size_);
  uint64_t done = 0;
  while (done < size_) {
    const ssize_t n = pread(fd_, copy_.data() + done, size_ - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw InputError(name_, "byte " + std::to_string(done), "a readable file", strerror(errno));
    }
    if (n == 0) {
      throw InputError(name_, "", std::to_string(size_) + " bytes", std::to_string(done) + " bytes",
                       "the file shrank while it was read");
    }
    done += static_cast<uint64_t>(n);
  }
  data_ = copy_.data();
}

void FileMap::check_unchanged() const {
  struct stat st;
  if (fstat(fd_, &st) != 0) throw InputError(name_, "", "an open file", strerror(errno));
  const auto now = static_cast<uint64_t>(st.st_size);
  if (now != size_) {
    throw InputError(name_, "", std::to_string(size_) + " bytes as when it was opened",
                     std::to_string(now) + " bytes", "is a download still writing the file?");
  }
  if (mtime_ns(st) != mtime_ns_) {
    throw InputError(name_, "", "a file that stays as it was opened", "a newer modification time",
                     "is a download still writing the file?");
  }
}

FileMap::FileMap(FileMap&& other) noexcept {
  *this = std::move(other);
}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  if (this == &other) return *this;
  release();
  fd_ = std::exchange(other.fd_, -1);
  name_ = std::move(other.name_);
  copy_ = std::move(other.copy_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mtime_ns_ = other.mtime_ns_;
  mapped_ = std::exchange(other.mapped_, false);
  return *this;
}

FileMap::~FileMap() {
  release();
}

void FileMap::release() noexcept {
  if (mapped_) munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  mapped_ = false;
  data_ = nullptr;
}

}  // namespace quern::smoke
