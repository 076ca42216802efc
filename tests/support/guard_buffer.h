#pragma once

#include <cstddef>
#include <cstdint>

namespace quern::test {

/// Where the operand lies in its pages.
enum class Flush : uint8_t {
  kEnd,    ///< the last byte is the last one before the guard page (less `offset`)
  kStart,  ///< the first byte is the first one after the guard page (plus `offset`)
};

/// Memory between two pages that fault on any access. `offset` shifts the operand away from its
/// guard page, to get every alignment; the bytes that this opens, and those on the far side up to
/// the other guard page, hold a canary that slack_intact() checks.
class GuardBuffer {
 public:
  GuardBuffer() = default;
  GuardBuffer(size_t bytes, Flush flush, size_t offset = 0);
  ~GuardBuffer();
  GuardBuffer(GuardBuffer&& other) noexcept;
  GuardBuffer& operator=(GuardBuffer&& other) noexcept;

  unsigned char* data() const { return data_; }
  size_t size() const { return size_; }

  /// From here on a write faults too.
  void make_read_only();
  void make_writable();

  bool slack_intact() const;

 private:
  void release();

  unsigned char* map_ = nullptr;  // guard page, `pages_bytes_` of memory, guard page
  size_t pages_bytes_ = 0;
  bool read_only_ = false;
  unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

/// Address space that costs nothing until touched: pages read as zero, and only those that are
/// written take memory. For operands whose offsets pass 2^31 and 2^32 bytes.
class SparseBuffer {
 public:
  explicit SparseBuffer(size_t bytes);
  ~SparseBuffer();
  SparseBuffer(const SparseBuffer&) = delete;
  SparseBuffer& operator=(const SparseBuffer&) = delete;

  /// Null where the system refuses so much address space.
  unsigned char* data() const { return data_; }

 private:
  unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quern::test
