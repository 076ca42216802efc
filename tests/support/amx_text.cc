#include "tests/support/amx_text.h"

#include <unistd.h>

namespace quern::amx_emu {
namespace {

constexpr const char* kRegisters[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8",
                                      "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip"};

}  // namespace

Text& Text::add(const char* text) {
  while (*text != 0 && size_ + 1 < sizeof text_) text_[size_++] = *text++;
  text_[size_] = 0;
  return *this;
}

Text& Text::add_hex(uint64_t value) {
  char digits[19];
  char* p = digits + sizeof digits;
  *--p = 0;
  do {
    *--p = "0123456789abcdef"[value & 15];
    value >>= 4;
  } while (value != 0);
  return add("0x").add(p);
}

Text& Text::add_decimal(uint64_t value) {
  char digits[21];
  char* p = digits + sizeof digits;
  *--p = 0;
  do {
    *--p = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  return add(p);
}

Text& Text::add_memory(const Instruction& instruction) {
  const MemoryOperand& m = instruction.memory;
  const char* separator = "";
  add("[");
  if (m.base != kNoRegister) {
    add(kRegisters[m.base]);
    separator = "+";
  }
  if (m.index != kNoRegister) {
    add(separator).add(kRegisters[m.index]).add("*").add_decimal(m.scale);
    separator = "+";
  }
  const auto magnitude = static_cast<uint64_t>(m.disp < 0 ? -int64_t{m.disp} : int64_t{m.disp});
  if (*separator == 0) {
    add_hex(static_cast<uint64_t>(int64_t{m.disp}));
  } else if (m.disp != 0) {
    add(m.disp < 0 ? "-" : "+").add_hex(magnitude);
  }
  return add("]");
}

Text& Text::add(const Instruction& i) {
  const auto tile = [this](int t) { add("tmm").add_decimal(static_cast<uint64_t>(t)); };
  add(to_string(i.op));
  if (i.op == Op::kTilerelease) return *this;
  add(" ");
  if (is_dot(i.op)) {
    tile(i.dst);
    add(",");
    tile(i.src1);
    add(",");
    tile(i.src2);
  } else if (i.op == Op::kTilezero) {
    tile(i.dst);
  } else if (is_load(i.op)) {
    tile(i.dst);
    add(",").add_memory(i);
  } else {
    add_memory(i);
    if (i.op != Op::kTilestored) return *this;
    add(",");
    tile(i.src1);
  }
  return *this;
}

void Text::print() const {
  size_t done = 0;
  while (done < size_) {
    const ssize_t n = write(STDERR_FILENO, text_ + done, size_ - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace quern::amx_emu
