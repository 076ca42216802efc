#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quern::jit {

/// A named stretch of a kernel's code, for dumps: it runs to the next section's offset.
struct CodeSection {
  size_t offset = 0;
  std::string name;
};

/// The section of this name holds data; every other one holds instructions.
constexpr std::string_view kConstantsSection = "constants";

/// How a debugger finds the caller from an address in the kernel: from `offset` to the next
/// change, that many of CodeFrame::saved are on the stack and nothing else.
struct FrameChange {
  size_t offset = 0;
  int pushed = 0;
};
struct CodeFrame {
  std::vector<int> saved;  ///< in the order of the pushes, numbered as in machine code (rbx is 3)
  std::vector<FrameChange> changes;  ///< ascending; before the first, nothing is pushed
};

/// What a generator produces: position-independent bytes and what a reader of them wants to know.
/// Pure data; equal configs give equal bytes.
struct GeneratedCode {
  std::string name;  ///< to_string(config), the kernel's only name
  std::vector<uint8_t> bytes;
  std::string register_map;  ///< a line a kind: "rdi=args ...", "zmm0=acc.0.0 ...", "k1=..."
  std::vector<CodeSection> sections;
  CodeFrame frame;
};

class CodeBlock;

/// What a listener keeps about a kernel, released just before the kernel's code is unmapped.
using KernelRecord = std::shared_ptr<const void>;

/// Executable code. Immutable, shared by plans; the code is unmapped when the last owner goes.
struct Kernel {
  std::string name;
  const void* entry = nullptr;
  size_t code_bytes = 0;
  uint64_t generate_ns = 0;  ///< spent generating and publishing
  std::shared_ptr<const CodeBlock> code;
  std::vector<KernelRecord> records;  ///< declared after `code`, so that they go first

  /// `Args` must be the argument struct of the generator that made this kernel.
  template <typename Args>
  void call(const Args& args) const {
    reinterpret_cast<void (*)(const Args*)>(reinterpret_cast<uintptr_t>(entry))(&args);
  }
};

using KernelHandle = std::shared_ptr<const Kernel>;

}  // namespace quern::jit
