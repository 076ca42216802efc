#pragma once

#include <string>

#include "jit/kernel.h"

namespace quern::jit {

/// One line an instruction: offset from the entry, bytes, text. Sections are headings, branch
/// targets are labels (L1, L2, ... in the order of their offsets), constants that instructions
/// refer to likewise (C1, C2, ...); the constants are shown as 32-bit words, not decoded. Equal
/// code gives equal text. Empty where there is no disassembler: quern was built without Zydis'
/// headers, or the library is not on this machine.
std::string code_listing(const GeneratedCode& code);

}  // namespace quern::jit
