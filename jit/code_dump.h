#pragma once

#include <string>
#include <utility>

#include "jit/code_registry.h"

namespace quern::jit {

/// The kernel's name as a file name that needs no quoting in a shell: letters, digits and ".-_=+,"
/// stay, every other byte becomes %xx (so no '/' and no two names become one), a leading '.' or '-'
/// likewise. A name above 200 bytes keeps its first 180 and gets a hash of the whole.
std::string dump_file_name(const std::string& kernel_name);

/// What objdump needs to disassemble the .bin, to be run in the dump directory. Addresses are those
/// of the process that wrote the dump.
std::string objdump_command(const std::string& file_name, const void* entry);

/// Contents of the .json: name, bytes, entry, register_map, sections, disassemble.
std::string dump_json(const GeneratedCode& code, const Kernel& kernel);

/// Contents of the .asm: the register map and the annotated instructions, or, where there is no
/// disassembler, the objdump command in their place.
std::string dump_asm(const GeneratedCode& code, const Kernel& kernel);

/// Writes <name>.bin (the code), <name>.json and <name>.asm into an existing directory. Each file
/// appears whole under its name or not at all. Throws std::runtime_error with path and cause.
class CodeDump final : public CodeListener {
 public:
  explicit CodeDump(std::string directory) : directory_(std::move(directory)) {}
  KernelRecord published(const GeneratedCode& code, const Kernel& kernel) override;

 private:
  std::string directory_;
};

}  // namespace quern::jit
