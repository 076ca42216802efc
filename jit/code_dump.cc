#include "jit/code_dump.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "jit/code_listing.h"
#include "jit/output_file.h"

namespace quern::jit {
namespace {

constexpr char kWhat[] = "jit dump";
constexpr size_t kLongestName = 200;  // NAME_MAX is 255; extension and temporary suffix fit besides
constexpr size_t kKeptOfLongName = 180;

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

/// Another thread or process may write the same kernel into the same directory: the temporary file
/// is this call's own, and the last rename wins with equal contents.
void write_file(const std::string& path, const void* data, size_t bytes) {
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) fail(kWhat, "create a file beside", path, errno);
  int error = write_all(fd, data, bytes) ? 0 : errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    (void)::unlink(temporary.c_str());
    fail(kWhat, "write", path, error);
  }
}

/// Comment lines: name, size, and which register held what, wrapped.
std::string listing_head(const GeneratedCode& code) {
  constexpr size_t kColumns = 100;
  std::string out = "; " + code.name + "\n; " + std::to_string(code.bytes.size()) +
                    " bytes, offsets from the entry\n;\n; registers, each with its last holder:\n";
  std::istringstream kinds(code.register_map);
  for (std::string kind; std::getline(kinds, kind);) {
    std::istringstream words(kind);
    std::string line = "; ";
    for (std::string word; words >> word; line += ' ' + word) {
      if (line.size() + 1 + word.size() > kColumns) {
        out += line + '\n';
        line = ";    ";
      }
    }
    out += line + '\n';
  }
  return out;
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

std::string dump_asm(const GeneratedCode& code, const Kernel& kernel) {
  const std::string head = listing_head(code);
  const std::string listing = code_listing(code);
  if (!listing.empty()) return head + listing;
  return head + "; No listing: no Zydis library. Run this in the directory of the .bin:\n;   " +
         objdump_command(dump_file_name(code.name), kernel.entry) + "\n";
}

KernelRecord CodeDump::published(const GeneratedCode& code, const Kernel& kernel) {
  const std::string stem = directory_ + "/" + dump_file_name(code.name);
  const std::string json = dump_json(code, kernel);
  const std::string listing = dump_asm(code, kernel);
  write_file(stem + ".bin", code.bytes.data(), code.bytes.size());
  write_file(stem + ".json", json.data(), json.size());
  write_file(stem + ".asm", listing.data(), listing.size());
  return nullptr;
}

}  // namespace quern::jit
