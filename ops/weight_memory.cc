#include "ops/weight_memory.h"

#include <sys/mman.h>

#include <new>

namespace quern::inline v0 {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

/// In whole huge pages, the last one too, unless most of that would be empty beside few others: 22
/// matrices of 128 KiB came 10 % slower while the last quarter of them lay in small pages.
size_t bytes_taken(size_t bytes) noexcept {
  const size_t rest = bytes % kHugePage;
  const size_t empty = rest == 0 ? 0 : kHugePage - rest;
  return empty <= bytes / 2 ? bytes + empty : bytes;
}

}  // namespace

std::shared_ptr<std::byte> allocate_weight_memory(size_t bytes) noexcept {
  const bool large = bytes >= kHugePage;
  const std::align_val_t align{large ? kHugePage : kLine};
  // At least one line, so that weights without elements have an address too.
  const size_t taken = large ? bytes_taken(bytes) : bytes > 0 ? bytes : kLine;
  auto* memory = static_cast<std::byte*>(::operator new(taken, align, std::nothrow));
  if (memory == nullptr) return nullptr;
  // Only whole huge pages: the rest of the last one may belong to somebody else.
  if (large) (void)madvise(memory, taken / kHugePage * kHugePage, MADV_HUGEPAGE);
  try {
    return {memory, [align](std::byte* p) { ::operator delete(p, align); }};
  } catch (const std::bad_alloc&) {
    return nullptr;  // the deleter has run
  }
}

}  // namespace quern::inline v0
