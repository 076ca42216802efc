#include "jit/code_dump.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "jit/kernel_cache.h"
#include "tests/jit/code_samples.h"
#include "tests/support/temp_dir.h"

namespace quern::jit {
namespace {

namespace fs = std::filesystem;

class CodeDumpTest : public testing::Test {
 protected:
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::string read(const std::string& name) const { return dir_.read(name); }
  CodeRegistryOptions options() {
    return {.dump_dir = directory_.string(),
            .on_error = [this](const std::string& line) { errors_.push_back(line); }};
  }

  const test::TempDir dir_;
  const fs::path directory_ = dir_.path();
  std::vector<std::string> errors_;
};

const char kName[] = "int8_gemm.avx512.s8u8bf16.mr6.nr4.epi=scale+bias";

GeneratedCode sample(const std::string& name = kName) {
  GeneratedCode code;
  code.name = name;
  code.bytes = return_constant(0x11223344);
  code.register_map = "rax \"sum\"\nrdi args\\none\t";
  code.sections = {{0, "emit_k_loop"}, {5, "emit_return"}};
  return code;
}

TEST_F(CodeDumpTest, BinAndJsonOfAPublishedKernel) {
  CodeRegistry registry(options());
  KernelCache cache(CodeMemory(), &registry);
  const auto kernel = cache.get(kName, [] { return Result<GeneratedCode>(sample()); });
  ASSERT_TRUE(kernel.ok());
  const std::string name = kName;
  EXPECT_EQ(files(), (std::set<std::string>{name + ".asm", name + ".bin", name + ".json"}));
  const std::string expected("\xb8\x44\x33\x22\x11\xc3", 6);
  EXPECT_EQ(read(name + ".bin"), expected);

  const nlohmann::json json = nlohmann::json::parse(read(name + ".json"));
  EXPECT_EQ(json.size(), 6u);
  EXPECT_EQ(json.at("name"), name);
  EXPECT_EQ(json.at("bytes"), 6);
  char entry[32];
  std::snprintf(entry, sizeof entry, "0x%lx", reinterpret_cast<unsigned long>((*kernel)->entry));
  EXPECT_EQ(json.at("entry"), entry);
  EXPECT_EQ(json.at("register_map"), sample().register_map);
  ASSERT_EQ(json.at("sections").size(), 2u);
  EXPECT_EQ(json.at("sections")[0].at("offset"), 0);
  EXPECT_EQ(json.at("sections")[0].at("name"), "emit_k_loop");
  EXPECT_EQ(json.at("sections")[1].at("offset"), 5);
  EXPECT_EQ(json.at("sections")[1].at("name"), "emit_return");
  EXPECT_EQ(json.at("disassemble"), "objdump -D -b binary -m i386:x86-64 -M intel --adjust-vma=" +
                                        std::string(entry) + " " + name + ".bin");
  EXPECT_TRUE(errors_.empty());
}

TEST_F(CodeDumpTest, TheObjdumpCommandDisassembles) {
  if (std::system("objdump --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no objdump here";
  CodeDump dump(directory_.string());
  Kernel kernel;
  kernel.entry = reinterpret_cast<const void*>(uintptr_t{0x7f0000001000});
  const std::string name = "odd name/$(x);'&\"";
  dump.published(sample(name), kernel);
  const nlohmann::json json = nlohmann::json::parse(read(dump_file_name(name) + ".json"));
  const std::string command = "cd '" + directory_.string() + "' && " +
                              json.at("disassemble").get<std::string>() + " > listing 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  const std::string listing = read("listing");
  EXPECT_NE(listing.find("7f0000001000:"), std::string::npos) << listing;
  EXPECT_NE(listing.find("eax,0x11223344"), std::string::npos) << listing;
  EXPECT_NE(listing.find("ret"), std::string::npos) << listing;
}

TEST(DumpFileName, SafeDistinctAndBounded) {
  EXPECT_EQ(dump_file_name(kName), kName);
  EXPECT_EQ(dump_file_name("a/b"), "a%2fb");
  EXPECT_EQ(dump_file_name("../../etc"), "%2e.%2f..%2fetc");
  EXPECT_EQ(dump_file_name("-rf"), "%2drf");
  EXPECT_EQ(dump_file_name("a b%"), "a%20b%25");
  EXPECT_EQ(dump_file_name(std::string("a\0b", 3)), "a%00b");
  EXPECT_EQ(dump_file_name(""), "%");
  EXPECT_EQ(dump_file_name("\xff\n"), "%ff%0a");
  const std::string long_name(1000, 'x');
  EXPECT_LE(dump_file_name(long_name).size(), 200u);
  EXPECT_NE(dump_file_name(long_name), dump_file_name(long_name + "x"));
  EXPECT_EQ(dump_file_name(std::string(200, 'x')), std::string(200, 'x'));
  for (int c = 0; c < 256; ++c) {
    const std::string file = dump_file_name("n" + std::string(1, static_cast<char>(c)));
    EXPECT_EQ(file.find('/'), std::string::npos);
    EXPECT_EQ(file.find('\0'), std::string::npos);
  }
}

TEST_F(CodeDumpTest, JsonWithoutSectionsOrMap) {
  GeneratedCode code = sample();
  code.sections.clear();
  code.register_map.clear();
  const nlohmann::json json = nlohmann::json::parse(dump_json(code, Kernel()));
  EXPECT_TRUE(json.at("sections").empty());
  EXPECT_EQ(json.at("register_map"), "");
  EXPECT_EQ(json.at("entry"), "0x0");
}

TEST_F(CodeDumpTest, FailureIsReportedOnceAndNeverFatal) {
  CodeRegistryOptions missing = options();
  missing.dump_dir = (directory_ / "absent").string();
  CodeRegistry registry(missing);
  KernelCache cache(CodeMemory(), &registry);
  for (const std::string name : {"one", "two", "three"}) {
    const auto kernel = cache.get(name, [&] { return Result<GeneratedCode>(sample(name)); });
    ASSERT_TRUE(kernel.ok());
    EXPECT_EQ(call_code((*kernel)->entry), 0x11223344u);
  }
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].find("absent/one.bin"), std::string::npos) << errors_[0];
  EXPECT_NE(errors_[0].find("No such file"), std::string::npos) << errors_[0];
}

TEST_F(CodeDumpTest, NothingIsLeftBehindWhenTheNameIsTaken) {
  fs::create_directory(directory_ / (std::string(kName) + ".bin"));
  CodeRegistry registry(options());
  registry.published(sample(), Kernel());
  EXPECT_EQ(errors_.size(), 1u);
  EXPECT_EQ(files(), (std::set<std::string>{std::string(kName) + ".bin"}));
}

TEST_F(CodeDumpTest, ReplacesAnOlderDump) {
  CodeDump dump(directory_.string());
  dump.published(sample(), Kernel());
  GeneratedCode changed = sample();
  changed.bytes = {0xc3};
  dump.published(changed, Kernel());
  EXPECT_EQ(files().size(), 3u);
  EXPECT_EQ(read(std::string(kName) + ".bin"), "\xc3");
}

TEST_F(CodeDumpTest, WithoutADirectoryNothingIsWritten) {
  CodeRegistry registry;
  registry.published(sample(), Kernel());
  EXPECT_TRUE(files().empty());
}

class ThrowingListener final : public CodeListener {
  KernelRecord published(const GeneratedCode&, const Kernel&) override { throw 7; }
};

TEST_F(CodeDumpTest, AThrowingListenerDoesNotKeepTheOthersFromHearing) {
  CodeRegistryOptions with_errors;
  with_errors.on_error = [this](const std::string& line) {
    errors_.push_back(line);
    throw std::runtime_error("the reporter fails as well");
  };
  CodeRegistry registry(with_errors);
  registry.add(std::make_shared<ThrowingListener>());
  registry.add(std::make_shared<CodeDump>(directory_.string()));
  registry.published(sample(), Kernel());
  EXPECT_EQ(errors_.size(), 1u);
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(CodeDumpTest, ManyThreadsIntoOneDirectory) {
  CodeRegistry registry(options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) registry.published(sample("k" + std::to_string(i)), Kernel());
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(errors_.empty());
  EXPECT_EQ(files().size(), 60u);
  EXPECT_EQ(read("k7.bin").size(), 6u);
}

}  // namespace
}  // namespace quern::jit
