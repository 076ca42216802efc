#include "jit/code_dump.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace quern::jit {
namespace {

constexpr size_t kLongestName = 200;  // NAME_MAX is 255; extension and temporary suffix fit besides
constexpr size_t kKeptOfLongName = 180;

std::string hex(uint64_t value, int digits = 1) {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, "%0*llx", digits, static_cast<unsigned long long>(value));
  return buffer;
}

/// FNV-1a: file names must be the same in every process, which std::hash does not promise.
uint64_t hash_of(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h;
}

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::strchr(".-_=+,", c) != nullptr);
}

/// A JSON string. Bytes from 0x80 pass: names and maps are ASCII or UTF-8.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += "\\u" + hex(static_cast<uint8_t>(c), 4);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

[[noreturn]] void fail(const char* doing, const std::string& path, int error) {
  throw std::runtime_error(std::string("jit dump: cannot ") + doing + " " + path + ": " +
                           std::strerror(error));
}

bool write_all(int fd, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

/// Another thread or process may write the same kernel into the same directory: the temporary file
/// is this call's own, and the last rename wins with equal contents.
void write_file(const std::string& path, const void* data, size_t bytes) {
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) fail("create a file beside", path, errno);
  int error = write_all(fd, data, bytes) ? 0 : errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    (void)::unlink(temporary.c_str());
    fail("write", path, error);
  }
}

}  // namespace

std::string dump_file_name(const std::string& kernel_name) {
  std::string out;
  for (const char c : kernel_name) {
    const bool leading_mark = out.empty() && (c == '.' || c == '-');
    if (plain(c) && !leading_mark) {
      out += c;
    } else {
      out += "%" + hex(static_cast<uint8_t>(c), 2);
    }
  }
  if (out.empty()) return "%";  // no other name becomes a lone percent sign
  if (out.size() <= kLongestName) return out;
  return out.substr(0, kKeptOfLongName) + "%" + hex(hash_of(kernel_name), 16);
}

std::string objdump_command(const std::string& file_name, const void* entry) {
  return "objdump -D -b binary -m i386:x86-64 -M intel --adjust-vma=0x" +
         hex(reinterpret_cast<uintptr_t>(entry)) + " " + file_name + ".bin";
}

std::string dump_json(const GeneratedCode& code, const Kernel& kernel) {
  const std::string command = objdump_command(dump_file_name(code.name), kernel.entry);
  std::string json = "{\n  \"name\": " + quoted(code.name) +
                     ",\n  \"bytes\": " + std::to_string(code.bytes.size()) +
                     ",\n  \"entry\": \"0x" + hex(reinterpret_cast<uintptr_t>(kernel.entry)) +
                     "\",\n  \"register_map\": " + quoted(code.register_map) +
                     ",\n  \"sections\": [";
  const char* separator = "";
  for (const CodeSection& section : code.sections) {
    json += separator;
    json += "\n    {\"offset\": " + std::to_string(section.offset) +
            ", \"name\": " + quoted(section.name) + "}";
    separator = ",";
  }
  json += code.sections.empty() ? "]" : "\n  ]";
  return json + ",\n  \"disassemble\": " + quoted(command) + "\n}\n";
}

void CodeDump::published(const GeneratedCode& code, const Kernel& kernel) {
  const std::string stem = directory_ + "/" + dump_file_name(code.name);
  const std::string json = dump_json(code, kernel);
  write_file(stem + ".bin", code.bytes.data(), code.bytes.size());
  write_file(stem + ".json", json.data(), json.size());
}

}  // namespace quern::jit
