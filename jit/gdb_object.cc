#include "jit/gdb_object.h"

#include <elf.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "jit/byte_buffer.h"

namespace quern::jit {
namespace {

/// DWARF counts rax rdx rcx rbx rsi rdi rbp rsp r8..r15, machine code rax rcx rdx rbx rsp rbp rsi
/// rdi r8..r15.
constexpr std::array<uint8_t, 16> kDwarfNumber = {0, 2, 1,  3,  7,  6,  4,  5,
                                                  8, 9, 10, 11, 12, 13, 14, 15};
constexpr uint8_t kDwarfRsp = 7;
constexpr uint8_t kDwarfReturnAddress = 16;

// DWARF 4, section 7.23.
constexpr uint8_t kAdvanceLoc4 = 0x04;
constexpr uint8_t kDefCfa = 0x0c;
constexpr uint8_t kDefCfaOffset = 0x0e;
constexpr uint8_t kOffset = 0x80;   // | register
constexpr uint8_t kRestore = 0xc0;  // | register
constexpr uint8_t kNop = 0x00;

void finish_entry(ByteBuffer& out, size_t start) {
  out.pad_to(8, kNop);
  out.put_at(start, static_cast<uint32_t>(out.size() - start - 4));
}

// The rules at the first instruction of any function: the canonical frame address is rsp + 8 and
// the return address lies just below it.
void put_common_entry(ByteBuffer& out) {
  const size_t start = out.size();
  out.put(uint32_t{0});
  out.put(uint32_t{0xffffffff});  // what makes it a common entry
  out.put(uint8_t{1});            // version
  out.put_string("");             // augmentation
  out.put_uleb(1);                // code alignment
  out.put(uint8_t{0x78});         // data alignment: -8 as signed LEB128
  out.put(kDwarfReturnAddress);
  out.put(kDefCfa);
  out.put_uleb(kDwarfRsp);
  out.put_uleb(8);
  out.put(static_cast<uint8_t>(kOffset | kDwarfReturnAddress));
  out.put_uleb(1);
  finish_entry(out, start);
}

// Saved register i lies 2 + i words below the canonical frame address, behind the return address.
void put_change(ByteBuffer& out, const CodeFrame& frame, int from, int to) {
  out.put(kDefCfaOffset);
  out.put_uleb(static_cast<uint64_t>(8 + 8 * to));
  const auto number = [&](int i) {
    return kDwarfNumber[static_cast<size_t>(frame.saved[static_cast<size_t>(i)])];
  };
  for (int i = from; i < to; ++i) {
    out.put(static_cast<uint8_t>(kOffset | number(i)));
    out.put_uleb(static_cast<uint64_t>(2 + i));
  }
  for (int i = to; i < from; ++i) out.put(static_cast<uint8_t>(kRestore | number(i)));
}

std::string debug_frame(const GeneratedCode& code, uint64_t address) {
  ByteBuffer out;
  put_common_entry(out);
  const size_t start = out.size();
  out.put(uint32_t{0});
  out.put(uint32_t{0});  // where the common entry begins
  out.put(address);
  out.put(static_cast<uint64_t>(code.bytes.size()));
  size_t at = 0;
  int pushed = 0;
  for (const FrameChange& change : code.frame.changes) {
    out.put(kAdvanceLoc4);
    out.put(static_cast<uint32_t>(change.offset - at));
    put_change(out, code.frame, pushed, change.pushed);
    at = change.offset;
    pushed = change.pushed;
  }
  finish_entry(out, start);
  return out.take();
}

enum Section : uint16_t { kNull, kText, kFrame, kSymtab, kStrtab, kSections };

Elf64_Ehdr file_header(uint64_t section_table) {
  Elf64_Ehdr header = {};
  constexpr unsigned char ident[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,    ELFMAG3,
                                     ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_SYSV};
  for (size_t i = 0; i < sizeof ident; ++i) header.e_ident[i] = ident[i];
  header.e_type = ET_EXEC;  // addresses are final: nothing is to be relocated
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_shoff = section_table;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSections;
  header.e_shstrndx = kStrtab;
  return header;
}

/// Section and symbol names in one table.
class Strings {
 public:
  Strings() { out_.put_string(""); }
  uint32_t add(std::string_view text) {
    const auto at = static_cast<uint32_t>(out_.size());
    out_.put_string(text);
    return at;
  }
  const ByteBuffer& bytes() const { return out_; }

 private:
  ByteBuffer out_;
};

/// Appends the contents and says where they are.
void place(ByteBuffer& out, const void* data, size_t bytes, Elf64_Shdr* section) {
  out.pad_to(8);
  section->sh_offset = out.size();
  section->sh_size = bytes;
  section->sh_addralign = 8;
  out.put_bytes(data, bytes);
}

}  // namespace

std::string gdb_object(const GeneratedCode& code, const void* entry) {
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(entry));
  std::array<Elf64_Shdr, kSections> sections = {};
  Strings strings;
  ByteBuffer out;
  out.put(Elf64_Ehdr{});

  Elf64_Shdr& text = sections[kText];
  text.sh_name = strings.add(".text");
  text.sh_type = SHT_NOBITS;  // the bytes are in memory already
  text.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  text.sh_addr = address;
  text.sh_offset = out.size();
  text.sh_size = code.bytes.size();
  text.sh_addralign = 16;

  const std::string frame = debug_frame(code, address);
  sections[kFrame].sh_name = strings.add(".debug_frame");
  sections[kFrame].sh_type = SHT_PROGBITS;
  place(out, frame.data(), frame.size(), &sections[kFrame]);

  std::array<Elf64_Sym, 2> symbols = {};  // the first is always empty
  symbols[1].st_name = strings.add(code.name);
  symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  symbols[1].st_shndx = kText;
  symbols[1].st_value = address;
  symbols[1].st_size = code.bytes.size();
  sections[kSymtab].sh_name = strings.add(".symtab");
  sections[kSymtab].sh_type = SHT_SYMTAB;
  sections[kSymtab].sh_link = kStrtab;
  sections[kSymtab].sh_info = 1;  // the first symbol that is not local
  sections[kSymtab].sh_entsize = sizeof(Elf64_Sym);
  place(out, symbols.data(), sizeof symbols, &sections[kSymtab]);

  sections[kStrtab].sh_name = strings.add(".strtab");
  sections[kStrtab].sh_type = SHT_STRTAB;
  place(out, strings.bytes().data(), strings.bytes().size(), &sections[kStrtab]);

  out.pad_to(8);
  out.put_at(0, file_header(out.size()));
  out.put_bytes(sections.data(), sizeof sections);
  return out.take();
}

}  // namespace quern::jit
