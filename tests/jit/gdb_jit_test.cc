// The list that debuggers read, and the ELF file in memory behind each entry, read back by a reader
// of the test's own.
#include "jit/gdb_jit.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jit/gdb_object.h"
#include "jit/kernel_cache.h"
#include "tests/jit/busy_kernel.h"
#include "tests/jit/child_process.h"
#include "tests/jit/code_samples.h"

// As GDB's manual declares them.
extern "C" {
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  uint64_t symfile_size;
};
struct jit_descriptor {
  uint32_t version;
  uint32_t action_flag;
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
extern jit_descriptor __jit_debug_descriptor;
}

namespace quern::jit {
namespace {

/// An ELF file of one kernel, as far as a debugger reads it.
struct Object {
  std::string name;
  uint64_t address = 0, bytes = 0;
  std::string frame;  // .debug_frame
};

template <typename T>
T at(const std::string& file, uint64_t offset) {
  T value{};
  EXPECT_LE(offset + sizeof value, file.size());
  if (offset + sizeof value <= file.size()) std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::optional<Object> parse(const std::string& file) {
  const auto header = at<Elf64_Ehdr>(file, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  EXPECT_EQ(header.e_ident[EI_CLASS], ELFCLASS64);
  EXPECT_EQ(header.e_machine, EM_X86_64);
  EXPECT_EQ(header.e_shentsize, sizeof(Elf64_Shdr));
  const auto section = [&](uint64_t i) {
    return at<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const auto text_at = [&](uint64_t table, uint64_t offset) {
    return std::string(file.c_str() + section(table).sh_offset + offset);
  };
  std::map<std::string, uint64_t> by_name;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    by_name[text_at(header.e_shstrndx, section(i).sh_name)] = i;
  }
  Object object;
  const Elf64_Shdr text = section(by_name.at(".text"));
  EXPECT_EQ(text.sh_type, static_cast<uint32_t>(SHT_NOBITS));
  EXPECT_EQ(text.sh_flags, static_cast<uint64_t>(SHF_ALLOC | SHF_EXECINSTR));
  const Elf64_Shdr symbols = section(by_name.at(".symtab"));
  EXPECT_EQ(symbols.sh_size, 2 * sizeof(Elf64_Sym));
  const auto symbol = at<Elf64_Sym>(file, symbols.sh_offset + sizeof(Elf64_Sym));
  EXPECT_EQ(ELF64_ST_TYPE(symbol.st_info), STT_FUNC);
  EXPECT_EQ(symbol.st_shndx, by_name.at(".text"));
  EXPECT_EQ(symbol.st_value, text.sh_addr);
  EXPECT_EQ(symbol.st_size, text.sh_size);
  object.name = text_at(symbols.sh_link, symbol.st_name);
  object.address = text.sh_addr;
  object.bytes = text.sh_size;
  const Elf64_Shdr frame = section(by_name.at(".debug_frame"));
  object.frame = file.substr(frame.sh_offset, frame.sh_size);
  return object;
}

/// Where the caller's values are, in bytes from the canonical frame address.
struct Rules {
  uint64_t cfa = 0;               // above rsp
  std::map<int, int64_t> places;  // DWARF register -> offset
  bool operator==(const Rules&) const = default;
};

/// Interprets .debug_frame (DWARF 4, section 6.4): offset in the code -> rules from there on. Knows
/// only the instructions that are to be expected.
std::map<uint64_t, Rules> frame_rules(const Object& object) {
  const std::string& f = object.frame;
  const uint64_t common_end = 4 + at<uint32_t>(f, 0);
  EXPECT_EQ(at<uint32_t>(f, 4), 0xffffffffu);
  const uint64_t entry = common_end;
  EXPECT_EQ(entry + 4 + at<uint32_t>(f, entry), f.size());
  EXPECT_EQ(at<uint32_t>(f, entry + 4), 0u);
  EXPECT_EQ(at<uint64_t>(f, entry + 8), object.address);
  EXPECT_EQ(at<uint64_t>(f, entry + 16), object.bytes);
  // Version 1, no augmentation, code in bytes, data in words downwards, return address is
  // column 16.
  EXPECT_EQ(f.substr(8, 5), std::string("\x01\x00\x01\x78\x10", 5));

  Rules rules;
  std::map<uint64_t, Rules> all;
  uint64_t location = 0;
  const auto interpret = [&](uint64_t from, uint64_t to) {
    const auto byte = [&] { return static_cast<uint8_t>(f.at(from++)); };
    while (from < to) {
      const uint8_t op = byte();
      if (op == 0x0c) {  // def_cfa
        EXPECT_EQ(byte(), 7);
        rules.cfa = byte();
      } else if (op == 0x0e) {
        rules.cfa = byte();
      } else if (op == 0x04) {
        all[location] = rules;
        location += at<uint32_t>(f, from);
        from += 4;
      } else if ((op & 0xc0) == 0x80) {
        rules.places[op & 0x3f] = -8 * int64_t{byte()};
      } else if ((op & 0xc0) == 0xc0) {
        rules.places.erase(op & 0x3f);
      } else {
        EXPECT_EQ(op, 0) << "an unexpected instruction";
      }
    }
  };
  interpret(13, common_end);
  interpret(entry + 24, f.size());
  all[location] = rules;
  return all;
}

Rules pushed(int n) {
  Rules rules{static_cast<uint64_t>(8 + 8 * n), {{16, -8}}};
  const int numbers[] = {3, 6, 12, 13, 14, 15};  // rbx, rbp, r12..r15 as DWARF counts
  for (int i = 0; i < n; ++i) rules.places[numbers[i]] = -16 - 8 * i;
  return rules;
}

TEST(GdbObject, NamesTheKernelAndWhereItIs) {
  GeneratedCode code;
  code.name = "int8_gemm.avx512.s8u8f32.mr1.nr1.pf0.epi=bias+residual";
  code.bytes = return_constant(1);
  const auto object =
      parse(gdb_object(code, reinterpret_cast<const void*>(uintptr_t{0x7f0012345000})));
  ASSERT_TRUE(object.has_value());
  EXPECT_EQ(object->name, code.name);
  EXPECT_EQ(object->address, 0x7f0012345000u);
  EXPECT_EQ(object->bytes, code.bytes.size());
  EXPECT_EQ(frame_rules(*object), (std::map<uint64_t, Rules>{{0, pushed(0)}}));
}

// The bytes of the pushes and pops are known: one each for rbx and rbp, two each for the others.
TEST(GdbObject, TellsWhereTheCallerIsAtEveryInstruction) {
  const auto code = generate_busy(false);
  ASSERT_TRUE(code.ok());
  const auto object = parse(gdb_object(*code, code->bytes.data()));
  ASSERT_TRUE(object.has_value());
  ASSERT_EQ(code->sections.size(), 4u);
  ASSERT_EQ(code->sections[2].name, "return");
  const uint64_t pops = code->sections[2].offset + 3;  // vzeroupper
  const uint64_t behind = code->sections[3].offset;
  const std::map<uint64_t, Rules> want = {
      {0, pushed(0)},         {1, pushed(1)},        {2, pushed(2)},        {4, pushed(3)},
      {6, pushed(4)},         {8, pushed(5)},        {10, pushed(6)},       {pops + 2, pushed(5)},
      {pops + 4, pushed(4)},  {pops + 6, pushed(3)}, {pops + 8, pushed(2)}, {pops + 9, pushed(1)},
      {pops + 10, pushed(0)}, {behind, pushed(6)}};
  EXPECT_EQ(frame_rules(*object), want);
}

std::vector<std::string> registered() {
  std::vector<std::string> names;
  const jit_code_entry* previous = nullptr;
  for (const jit_code_entry* e = __jit_debug_descriptor.first_entry; e != nullptr;
       e = e->next_entry) {
    EXPECT_EQ(e->prev_entry, previous);
    previous = e;
    const auto object = parse(std::string(e->symfile_addr, e->symfile_size));
    names.push_back(object ? object->name : "(no object)");
  }
  return names;
}

class GdbJit : public testing::Test {
 protected:
  GdbJit() : registry_({.gdb = true}) {}
  KernelHandle make(KernelCache& cache, const std::string& name) {
    const auto kernel = cache.get(name, [&name]() -> Result<GeneratedCode> {
      GeneratedCode code;
      code.name = name;
      code.bytes = return_constant(1);
      return code;
    });
    EXPECT_TRUE(kernel.ok());
    return kernel.ok() ? *kernel : nullptr;
  }
  CodeRegistry registry_;
};

TEST_F(GdbJit, KernelsAreListedAsLongAsTheirCodeExists) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(__jit_debug_descriptor.version, 1u);
  EXPECT_EQ(registered(), Names());
  KernelHandle kept;
  {
    KernelCache cache(CodeMemory(), &registry_);
    make(cache, "a");
    kept = make(cache, "b");
    make(cache, "c");
    EXPECT_EQ(registered(), (Names{"c", "b", "a"}));
    EXPECT_EQ(__jit_debug_descriptor.action_flag, 0u);
    EXPECT_EQ(__jit_debug_descriptor.relevant_entry, nullptr);
  }
  EXPECT_EQ(registered(), Names{"b"});
  kept = nullptr;
  EXPECT_EQ(registered(), Names());
}

TEST_F(GdbJit, WithoutTheListenerNothingIsListed) {
  CodeRegistry registry;
  KernelCache cache(CodeMemory(), &registry);
  make(cache, "a");
  EXPECT_TRUE(registered().empty());
}

TEST_F(GdbJit, ManyThreadsRegisterAndUnregister) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        KernelCache cache(CodeMemory(), &registry_);
        make(cache, "a");
        make(cache, "b");
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(registered().empty());
}

TEST_F(GdbJit, AForkedChildHasTheListAndAddsToIt) {
  KernelCache cache(CodeMemory(), &registry_);
  make(cache, "parent");
  EXPECT_EQ(in_child([&] {
              make(cache, "child");
              return registered() == std::vector<std::string>{"child", "parent"} ? 0 : 1;
            }),
            0);
  EXPECT_EQ(registered(), std::vector<std::string>{"parent"});
}

}  // namespace
}  // namespace quern::jit
