#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quern::jit {

/// Pieces that the listeners which write files share.

/// Lower-case hexadecimal with at least that many digits.
std::string hex(uint64_t value, int digits = 1);

/// False with errno set where not everything could be written.
bool write_all(int fd, const void* data, size_t bytes) noexcept;

/// Throws std::runtime_error "<what>: cannot <doing> <path>: <text of the errno>".
[[noreturn]] void fail(const char* what, const char* doing, const std::string& path, int error);

}  // namespace quern::jit
