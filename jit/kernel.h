#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace quern::jit {

/// A named stretch of a kernel's code, for dumps: it runs to the next section's offset.
struct CodeSection {
  size_t offset = 0;
  std::string name;
};

/// What a generator produces: position-independent bytes and what a reader of them wants to know.
/// Pure data; equal configs give equal bytes.
struct GeneratedCode {
  std::string name;  ///< to_string(config), the kernel's only name
  std::vector<uint8_t> bytes;
  std::string register_map;
  std::vector<CodeSection> sections;
};

class CodeBlock;

/// Executable code. Immutable, shared by plans; the code is unmapped when the last owner goes.
struct Kernel {
  std::string name;
  const void* entry = nullptr;
  size_t code_bytes = 0;
  uint64_t generate_ns = 0;  ///< spent generating and publishing
  std::shared_ptr<const CodeBlock> code;

  /// `Args` must be the argument struct of the generator that made this kernel.
  template <typename Args>
  void call(const Args& args) const {
    reinterpret_cast<void (*)(const Args*)>(reinterpret_cast<uintptr_t>(entry))(&args);
  }
};

using KernelHandle = std::shared_ptr<const Kernel>;

}  // namespace quern::jit
