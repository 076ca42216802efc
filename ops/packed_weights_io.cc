#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ops/checksum.h"
#include "ops/group_layout.h"
#include "ops/packed_weights_builder.h"
#include "ops/packed_weights_file.h"
#include "quern/packed_weights.h"

namespace quern::inline v0 {
namespace {

class File {
 public:
  explicit File(int fd) noexcept : fd_(fd) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  /// 0 or the errno: where the data was kept back until now, this is where it fails.
  int close() noexcept {
    const int fd = std::exchange(fd_, -1);
    return fd >= 0 && ::close(fd) != 0 ? errno : 0;
  }

 private:
  int fd_;
};

Status io_error(const char* text, const std::string& path, int error) noexcept {
  const char* description = strerrordesc_np(error);  // static text, unlike strerror's
  return Status::about_file(StatusCode::kIoError, text, path, error, 0,
                            description != nullptr ? description : "unknown error");
}

Status check_path(const std::string& path) noexcept {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Status(StatusCode::kInvalidArgument, "path is empty or holds a NUL byte");
  }
  return {};
}

// ---- Writing

int write_all(int fd, const std::byte* data, size_t bytes) noexcept {
  constexpr size_t kMost = size_t{1} << 30;  // Linux writes less than 2^31 bytes at once
  while (bytes > 0) {
    const ssize_t n = ::write(fd, data, std::min(bytes, kMost));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

int open_temporary(const std::string& directory, std::string* name) {
  // Not mkstemp: it makes files that only their owner may read, and the umask, which would say what
  // is wanted, cannot be asked for without changing it for the whole process.
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    *name = directory + ".quern-" + std::to_string(getpid()) + '-' + std::to_string(i) + ".tmp";
    const int fd = ::open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || (errno != EEXIST && errno != EINTR)) return fd;
  }
  return -1;
}

/// Whether a crash can still lose the new name is up to the file system where this fails.
void sync_directory(const std::string& directory) noexcept {
  const File dir(
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.is_open()) (void)::fsync(dir.fd());
}

Status write_weights(File* file, const PackedWeights& weights, const std::string& path) noexcept {
  const WeightFilePage page = make_weight_file_page(weights);
  int error = write_all(file->fd(), page.bytes, sizeof page);
  if (error == 0) error = write_all(file->fd(), weights.data(), weights.bytes());
  if (error == 0 && ::fsync(file->fd()) != 0) error = errno;
  if (const int at_close = file->close(); error == 0) error = at_close;
  return error == 0 ? Status() : io_error("{f}: cannot write: {s} (errno {0})", path, error);
}

Status save_weights(const PackedWeights& weights, const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  std::string temporary;
  File file(open_temporary(directory, &temporary));
  if (!file.is_open()) {
    return io_error("{f}: cannot create a file in its directory: {s} (errno {0})", path, errno);
  }
  Status status = write_weights(&file, weights, path);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = io_error("{f}: cannot rename to: {s} (errno {0})", path, errno);
  }
  if (!status.ok()) {
    (void)::unlink(temporary.c_str());
    return status;
  }
  sync_directory(directory);
  return {};
}

// ---- Reading

/// Reads exactly `bytes` at `at`: a file that has become shorter gives an error here, where a look
/// at its mapped pages would give SIGBUS.
Status read_at(const File& file, int64_t at, std::byte* to, size_t bytes,
               const std::string& path) noexcept {
  size_t done = 0;
  while (done < bytes) {
    const off_t from = static_cast<off_t>(at) + static_cast<off_t>(done);
    const ssize_t n = ::pread(file.fd(), to + done, bytes - done, from);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("{f}: cannot read: {s} (errno {0})", path, errno);
    if (n == 0) {
      return Status::about_file(StatusCode::kBadFile, "{f}: ends after {0} bytes, expected {1}",
                                path, from, at + static_cast<int64_t>(bytes));
    }
    done += static_cast<size_t>(n);
  }
  return {};
}

Status verify_payload(const File& file, const WeightFileHeader& header,
                      const std::string& path) noexcept {
  constexpr int64_t kChunk = 1 << 20;
  const std::unique_ptr<std::byte[]> chunk(new (std::nothrow) std::byte[kChunk]);
  if (chunk == nullptr) return Status(StatusCode::kOutOfMemory, "no memory to verify a file");
  LineChecksum sum;
  for (int64_t at = 0; at < header.payload_bytes; at += kChunk) {
    const auto bytes = static_cast<size_t>(std::min(kChunk, header.payload_bytes - at));
    const Status s = read_at(file, header.payload_offset + at, chunk.get(), bytes, path);
    if (!s.ok()) return s;
    sum.add(chunk.get(), bytes / LineChecksum::kLineBytes);
  }
  if (sum.value() == header.payload_check) return {};
  return Status::about_file(StatusCode::kBadFile,
                            "{f}: {s} is {0}, expected {1}: the weights are damaged", path,
                            static_cast<int64_t>(sum.value()),
                            static_cast<int64_t>(header.payload_check), "payload_check");
}

/// The columns of K that weights with act_order name, checked; null for others. Read, not mapped:
/// they are where A is read, and the file can be changed in place at any time.
Result<std::shared_ptr<const int32_t>> read_order(const File& file,
                                                  const WeightFileContent& content,
                                                  const std::string& path) {
  const WeightGroups& grouped = content.shape.grouped;
  if (!grouped.act_order) return std::shared_ptr<const int32_t>();
  const auto depth =
      static_cast<size_t>(GroupLayout(content.shape.k, grouped.group, grouped.groups).depth());
  const auto columns = std::make_shared<std::vector<int32_t>>(depth);
  const int64_t section = WeightFileHeader::kHeaderBytes + content.geometry.order_offset;
  const Status s = read_at(file, section, reinterpret_cast<std::byte*>(columns->data()),
                           depth * sizeof(int32_t), path);
  if (!s.ok()) return s;
  const Status known =
      check_weight_order({columns->data(), columns->size()}, 0, content.shape.k, path);
  if (!known.ok()) return known;
  return std::shared_ptr<const int32_t>(columns, columns->data());
}

Result<PackedWeights> map_weights(const std::string& path, const MapWeightsOptions& options) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return io_error("{f}: cannot open: {s} (errno {0})", path, errno);
  struct stat info = {};
  if (::fstat(file.fd(), &info) != 0) {
    return io_error("{f}: cannot stat: {s} (errno {0})", path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return Status::about_file(StatusCode::kBadFile, "{f}: is not a regular file", path);
  }
  WeightFilePage page;
  if (const Status s = read_at(file, 0, page.bytes, sizeof page, path); !s.ok()) return s;
  const auto content = check_weight_file_page(page, info.st_size, path);
  if (!content.ok()) return content.status();
  auto order = read_order(file, *content, path);
  if (!order.ok()) return order.status();
  const WeightFileHeader& header = page.header;
  if (options.verify) {
    if (const Status s = verify_payload(file, header, path); !s.ok()) return s;
  }
  // Shared, not private: a mapping that came from a read-only descriptor can then never be made
  // writable, by nobody.
  const auto bytes = static_cast<size_t>(info.st_size);
  void* const base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (base == MAP_FAILED) return io_error("{f}: cannot map: {s} (errno {0})", path, errno);
  const auto unmap = [bytes](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), bytes); };
  const std::shared_ptr<const std::byte> mapping(static_cast<const std::byte*>(base), unmap);
  return PackedWeightsBuilder::over(
      content->shape, content->geometry,
      std::shared_ptr<const std::byte>(mapping, mapping.get() + header.payload_offset),
      std::move(*order));
}

}  // namespace

Status PackedWeights::save(const std::string& path) const {
  if (empty()) return Status(StatusCode::kInvalidArgument, "there are no weights to save");
  if (const Status s = check_path(path); !s.ok()) return s;
  try {
    return save_weights(*this, path);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory to save weights");
  }
}

Result<PackedWeights> PackedWeights::map(const std::string& path,
                                         const MapWeightsOptions& options) {
  if (const Status s = check_path(path); !s.ok()) return s;
  try {
    return map_weights(path, options);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory to map weights");
  }
}

}  // namespace quern::inline v0
