#include "tests/support/guard_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace quern::test {
namespace {

constexpr unsigned char kSlackByte = 0xC5;

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A test cannot go on without its memory, and there is nobody to hand an error to.
void require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

/// Mappings that buffers gave back, writable, by the pages between their guards. A property test
/// makes a dozen buffers for each of some 100,000 cases, and the kernel takes longer to make and
/// drop a mapping than a small GEMM takes. Large ones are not kept.
class MappingPool {
 public:
  ~MappingPool() {
    for (size_t pages = 1; pages < kMaxPages; ++pages) {
      for (unsigned char* map : free_[pages]) munmap(map, (pages + 2) * page_bytes());
    }
  }

  unsigned char* take(size_t bytes) {
    const size_t page = page_bytes();
    const size_t pages = bytes / page;
    if (pages < kMaxPages && !free_[pages].empty()) {
      unsigned char* map = free_[pages].back();
      free_[pages].pop_back();
      return map;
    }
    void* map = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(map != MAP_FAILED, "mmap");
    unsigned char* first = static_cast<unsigned char*>(map) + page;
    require(mprotect(first, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    return static_cast<unsigned char*>(map);
  }

  void give(unsigned char* map, size_t bytes) {
    const size_t pages = bytes / page_bytes();
    if (pages < kMaxPages && free_[pages].size() < kMaxFree) {
      free_[pages].push_back(map);
    } else {
      munmap(map, bytes + 2 * page_bytes());
    }
  }

 private:
  static constexpr size_t kMaxPages = 64;
  static constexpr size_t kMaxFree = 32;
  std::vector<unsigned char*> free_[kMaxPages];
};

MappingPool& mapping_pool() {
  static thread_local MappingPool pool;
  return pool;
}

}  // namespace

GuardBuffer::GuardBuffer(size_t bytes, Flush flush, size_t offset) : size_(bytes) {
  const size_t page = page_bytes();
  pages_bytes_ = (bytes + offset + page - 1) / page * page;
  if (pages_bytes_ == 0) pages_bytes_ = page;  // an empty operand still has an address
  map_ = mapping_pool().take(pages_bytes_);
  unsigned char* first = map_ + page;
  data_ = flush == Flush::kStart ? first + offset : first + pages_bytes_ - offset - bytes;
  std::memset(first, kSlackByte, pages_bytes_);
}

GuardBuffer::~GuardBuffer() {
  release();
}

GuardBuffer::GuardBuffer(GuardBuffer&& other) noexcept {
  *this = std::move(other);
}

GuardBuffer& GuardBuffer::operator=(GuardBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  map_ = std::exchange(other.map_, nullptr);
  pages_bytes_ = std::exchange(other.pages_bytes_, 0);
  read_only_ = std::exchange(other.read_only_, false);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void GuardBuffer::release() {
  if (!map_) return;
  if (read_only_) make_writable();
  mapping_pool().give(map_, pages_bytes_);
  map_ = nullptr;
}

void GuardBuffer::make_read_only() {
  require(mprotect(map_ + page_bytes(), pages_bytes_, PROT_READ) == 0, "mprotect");
  read_only_ = true;
}

void GuardBuffer::make_writable() {
  require(mprotect(map_ + page_bytes(), pages_bytes_, PROT_READ | PROT_WRITE) == 0, "mprotect");
  read_only_ = false;
}

bool GuardBuffer::slack_intact() const {
  if (!map_) return true;
  const unsigned char* first = map_ + page_bytes();
  const unsigned char* end = first + pages_bytes_;
  for (const unsigned char* p = first; p < data_; ++p) {
    if (*p != kSlackByte) return false;
  }
  for (const unsigned char* p = data_ + size_; p < end; ++p) {
    if (*p != kSlackByte) return false;
  }
  return true;
}

SparseBuffer::SparseBuffer(size_t bytes) : size_(bytes) {
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map != MAP_FAILED) data_ = static_cast<unsigned char*>(map);
}

SparseBuffer::~SparseBuffer() {
  if (data_) munmap(data_, size_);
}

}  // namespace quern::test
