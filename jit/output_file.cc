#include "jit/output_file.h"

#include <errno.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace quern::jit {

std::string hex(uint64_t value, int digits) {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, "%0*llx", digits, static_cast<unsigned long long>(value));
  return buffer;
}

bool write_all(int fd, const void* data, size_t bytes) noexcept {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

void fail(const char* what, const char* doing, const std::string& path, int error) {
  throw std::runtime_error(std::string(what) + ": cannot " + doing + " " + path + ": " +
                           std::strerror(error));
}

}  // namespace quern::jit
