#include "tests/ops/allocation_counter.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local int64_t t_allocations = 0;
thread_local int64_t t_left = -1;  // before all fail; negative: no limit

void* allocate(size_t bytes, size_t alignment) noexcept {
  ++t_allocations;
  if (t_left == 0) return nullptr;
  if (t_left > 0) --t_left;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const p = allocate(bytes, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

namespace quern::test {

int64_t allocations() noexcept {
  return t_allocations;
}

void fail_allocations_after(int64_t n) noexcept {
  t_left = n;
}

}  // namespace quern::test

// Every form for single objects. The nothrow ones too: a sanitizer's runtime has its own, and
// memory from those must not end in our delete. Array forms are not replaced and stay among
// themselves.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes) {
  return allocate_or_throw(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
