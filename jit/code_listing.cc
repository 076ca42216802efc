#include "jit/code_listing.h"

#include <Zydis/Zydis.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "jit/output_file.h"

namespace quern::jit {
namespace {

/// The functions of Zydis that a listing needs, looked up when the first one is written. quern is
/// not linked with Zydis: a program that uses quern would otherwise need it for a debugging aid.
struct Zydis {
  decltype(&ZydisDecoderInit) decoder_init = nullptr;
  decltype(&ZydisDecoderDecodeInstruction) decode_instruction = nullptr;
  decltype(&ZydisDecoderDecodeOperands) decode_operands = nullptr;
  decltype(&ZydisFormatterInit) formatter_init = nullptr;
  decltype(&ZydisFormatterFormatInstruction) format = nullptr;
  decltype(&ZydisMnemonicGetString) mnemonic = nullptr;
  bool complete = false;
};

template <typename Function>
bool look_up(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

std::unique_ptr<const Zydis> load_zydis() {
  auto loaded = std::make_unique<Zydis>();
  Zydis& z = *loaded;
  // Zydis puts major and minor into its soname, so this is a library that fits the headers.
  const std::string soname = "libZydis.so." + std::to_string(ZYDIS_VERSION_MAJOR(ZYDIS_VERSION)) +
                             '.' + std::to_string(ZYDIS_VERSION_MINOR(ZYDIS_VERSION));
  void* library = ::dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return loaded;
  z.complete = look_up(library, "ZydisDecoderInit", &z.decoder_init) &&
               look_up(library, "ZydisDecoderDecodeInstruction", &z.decode_instruction) &&
               look_up(library, "ZydisDecoderDecodeOperands", &z.decode_operands) &&
               look_up(library, "ZydisFormatterInit", &z.formatter_init) &&
               look_up(library, "ZydisFormatterFormatInstruction", &z.format) &&
               look_up(library, "ZydisMnemonicGetString", &z.mnemonic);
  return loaded;
}

// Not a static of the function, whose guard a forked child could find taken for ever.
constinit std::atomic<const Zydis*> the_zydis{nullptr};

const Zydis& zydis() {
  const Zydis* known = the_zydis.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  std::unique_ptr<const Zydis> loaded = load_zydis();
  if (the_zydis.compare_exchange_strong(known, loaded.get(), std::memory_order_acq_rel)) {
    return *loaded.release();
  }
  return *known;  // another thread was faster
}

struct Instruction {
  size_t offset = 0;
  ZydisDecodedInstruction decoded{};
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT]{};
  bool valid = false;  ///< else one byte that begins no instruction
};

/// Where a branch goes, or -1.
int64_t branch_target(const Instruction& i) {
  if (!i.valid || !i.decoded.raw.imm[0].is_relative) return -1;
  return static_cast<int64_t>(i.offset + i.decoded.length) + i.decoded.raw.imm[0].value.s;
}

/// What a rip-relative operand points at, or -1.
int64_t data_target(const Instruction& i) {
  if (!i.valid) return -1;
  for (int n = 0; n < i.decoded.operand_count_visible; ++n) {
    const ZydisDecodedOperand& operand = i.operands[n];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RIP) {
      return static_cast<int64_t>(i.offset + i.decoded.length) + operand.mem.disp.value;
    }
  }
  return -1;
}

class Listing {
 public:
  explicit Listing(const GeneratedCode& code);
  std::string text();

 private:
  void decode(size_t from, size_t to);
  void find_labels();
  void write_headings(size_t offset);
  void write_line(size_t offset, size_t bytes, const std::string& text);
  void write_instruction(const Instruction& instruction);
  void write_data(size_t from, size_t to);

  /// A stretch of code or of data.
  struct Part {
    size_t from, to;
    bool data;
  };
  std::vector<Part> parts() const;

  const GeneratedCode& code_;
  const Zydis& zydis_;
  ZydisDecoder decoder_;
  ZydisFormatter formatter_;
  std::vector<Instruction> instructions_;
  std::map<size_t, std::string> labels_;
  size_t next_section_ = 0;
  std::string out_;
};

Listing::Listing(const GeneratedCode& code) : code_(code), zydis_(zydis()) {
  zydis_.decoder_init(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  zydis_.formatter_init(&formatter_, ZYDIS_FORMATTER_STYLE_INTEL);
}

std::vector<Listing::Part> Listing::parts() const {
  std::vector<Part> all = {{0, 0, false}};
  for (const CodeSection& section : code_.sections) {
    all.back().to = std::min(section.offset, code_.bytes.size());
    all.push_back({all.back().to, 0, section.name == kConstantsSection});
  }
  all.back().to = code_.bytes.size();
  return all;
}

void Listing::decode(size_t from, size_t to) {
  for (size_t at = from; at < to;) {
    Instruction i;
    i.offset = at;
    ZydisDecoderContext context;
    i.valid = ZYAN_SUCCESS(zydis_.decode_instruction(&decoder_, &context, code_.bytes.data() + at,
                                                     to - at, &i.decoded)) &&
              ZYAN_SUCCESS(zydis_.decode_operands(&decoder_, &context, &i.decoded, i.operands,
                                                  ZYDIS_MAX_OPERAND_COUNT));
    at += i.valid ? i.decoded.length : 1;
    instructions_.push_back(i);
  }
}

void Listing::find_labels() {
  std::set<size_t> code, data;
  for (const Instruction& i : instructions_) {
    if (const int64_t target = branch_target(i); target >= 0) {
      code.insert(static_cast<size_t>(target));
    }
    if (const int64_t target = data_target(i); target >= 0) {
      data.insert(static_cast<size_t>(target));
    }
  }
  size_t number = 0;
  for (const size_t target : code) labels_[target] = "L" + std::to_string(++number);
  number = 0;
  for (const size_t target : data) labels_[target] = "C" + std::to_string(++number);
}

void Listing::write_headings(size_t offset) {
  const std::vector<CodeSection>& all = code_.sections;
  for (; next_section_ < all.size() && all[next_section_].offset <= offset; ++next_section_) {
    out_ += "\n; ---- " + all[next_section_].name + '\n';
  }
  if (const auto label = labels_.find(offset); label != labels_.end()) {
    out_ += label->second + ":\n";
  }
}

void Listing::write_line(size_t offset, size_t bytes, const std::string& text) {
  std::string line = "  " + hex(offset, 4) + "  ";
  for (size_t i = 0; i < bytes; ++i) line += hex(code_.bytes[offset + i], 2);
  constexpr size_t kTextColumn = 34;  // 13 bytes; the longest instructions push their text right
  line.resize(std::max(line.size() + 1, kTextColumn), ' ');
  out_ += line + text + '\n';
}

void Listing::write_instruction(const Instruction& i) {
  write_headings(i.offset);
  if (!i.valid) return write_line(i.offset, 1, "(bad)");
  if (const int64_t target = branch_target(i); target >= 0) {
    return write_line(i.offset, i.decoded.length,
                      std::string(zydis_.mnemonic(i.decoded.mnemonic)) + ' ' +
                          labels_[static_cast<size_t>(target)]);
  }
  char text[256];
  const ZyanStatus status =
      zydis_.format(&formatter_, &i.decoded, i.operands, i.decoded.operand_count_visible, text,
                    sizeof text, ZYDIS_RUNTIME_ADDRESS_NONE, nullptr);
  std::string line = ZYAN_SUCCESS(status) ? text : "(cannot be written)";
  if (const int64_t target = data_target(i); target >= 0) {
    line += "  ; " + labels_[static_cast<size_t>(target)];
  }
  write_line(i.offset, i.decoded.length, line);
}

// Everything up to the first multiple of 4 is padding of the assembler.
void Listing::write_data(size_t from, size_t to) {
  for (size_t at = from; at < to;) {
    write_headings(at);
    const size_t bytes = std::min(to - at, 4 - at % 4);
    std::string text = ".byte";
    if (bytes == 4) {
      uint32_t word;
      std::memcpy(&word, code_.bytes.data() + at, 4);
      char value[32];
      std::snprintf(value, sizeof value, "%.9g", static_cast<double>(std::bit_cast<float>(word)));
      text = ".long 0x" + hex(word, 8) + "  ; " + value;
    }
    write_line(at, bytes, text);
    at += bytes;
  }
}

std::string Listing::text() {
  const std::vector<Part> all = parts();
  for (const Part& part : all) {
    if (!part.data) decode(part.from, part.to);
  }
  find_labels();
  size_t next = 0;
  for (const Part& part : all) {
    if (part.data) {
      write_data(part.from, part.to);
      continue;
    }
    for (; next < instructions_.size() && instructions_[next].offset < part.to; ++next) {
      write_instruction(instructions_[next]);
    }
  }
  return out_;
}

}  // namespace

std::string code_listing(const GeneratedCode& code) {
  if (!zydis().complete) return std::string();
  return Listing(code).text();
}

}  // namespace quern::jit
