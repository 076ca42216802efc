#include "jit/code_memory.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/jit/code_samples.h"
#include "tests/jit/fake_memory.h"
#include "tests/jit/proc_maps.h"

namespace quern::jit {
namespace {

using Block = std::shared_ptr<const CodeBlock>;

Result<Block> publish(const CodeMemory& memory, const std::vector<uint8_t>& code) {
  return memory.publish(code.data(), code.size());
}

TEST(CodeMemoryTest, PublishedCodeRuns) {
  const CodeMemory memory;
  for (const uint32_t value : {0u, 1u, 0x80000000u, 0xffffffffu, 42u}) {
    const Result<Block> block = publish(memory, return_constant(value));
    ASSERT_TRUE(block.ok()) << block.status().text();
    EXPECT_EQ(call(**block), value);
  }
}

TEST(CodeMemoryTest, PagesAreReadExecuteAndPaddedWithInt3) {
  const CodeMemory memory;
  const size_t page = system_memory().page_bytes();
  for (const size_t n : {size_t{1}, size_t{6}, page - 1, page, page + 1, 3 * page}) {
    std::vector<uint8_t> code(n, 0x90);
    code.back() = 0xc3;
    const Result<Block> block = publish(memory, code);
    ASSERT_TRUE(block.ok()) << block.status().text();
    EXPECT_EQ((*block)->size(), n);
    EXPECT_EQ((*block)->mapped_bytes(), (n + page - 1) / page * page);
    const auto* bytes = static_cast<const uint8_t*>((*block)->entry());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % page, 0u);
    EXPECT_EQ(rights_at(bytes), "r-xp");
    EXPECT_TRUE(std::equal(code.begin(), code.end(), bytes));
    for (size_t i = n; i < (*block)->mapped_bytes(); ++i) ASSERT_EQ(bytes[i], 0xcc) << i;
  }
}

// What sampling could miss: the rights that each single call leaves behind.
TEST(CodeMemoryTest, EachSystemCallLeavesTheRightsItPromises) {
  const MemoryApi& api = system_memory();
  const size_t page = api.page_bytes();
  void* base = nullptr;
  ASSERT_EQ(api.map_rw(page, &base), 0);
  EXPECT_EQ(rights_at(base), "rw-p");
  ASSERT_EQ(api.protect_rx(base, page), 0);
  EXPECT_EQ(rights_at(base), "r-xp");
  EXPECT_EQ(api.unmap(base, page), 0);
  int fd = -1;
  ASSERT_EQ(api.create_memfd(1, &fd), 0);
  const std::vector<uint8_t> bytes(page, 0xcc);
  ASSERT_EQ(api.write_fd(fd, bytes.data(), page), 0);
  ASSERT_EQ(api.map_fd_rx(fd, page, &base), 0);
  EXPECT_EQ(rights_at(base), "r-xp");
  EXPECT_EQ(api.close_fd(fd), 0);
  EXPECT_EQ(rights_at(base), "r-xp");
  EXPECT_EQ(api.unmap(base, page), 0);
}

// The kernel itself is asked to write into the code, which unlike a store of ours does not trap.
TEST(CodeMemoryTest, PublishedCodeCannotBeWritten) {
  for (const int mprotect_error : {0, EACCES}) {
    FakeMemory api;
    api.protect_error = mprotect_error;
    const CodeMemory memory(api);
    const Result<Block> block = publish(memory, return_constant(3));
    ASSERT_TRUE(block.ok());
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    ASSERT_EQ(syscall(SYS_read, ends[0], (*block)->entry(), 1), -1);
    EXPECT_EQ(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(call(**block), 3u);
  }
}

TEST(CodeMemoryTest, SizeRules) {
  const FakeMemory api;
  const CodeMemory memory(api);
  const uint8_t ret = 0xc3;
  EXPECT_EQ(memory.publish(&ret, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(memory.publish(nullptr, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(memory.publish(nullptr, 5).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(memory.publish(&ret, kMaxCodeBytes + 1).status().code(), StatusCode::kTooLarge);
  EXPECT_EQ(memory.publish(&ret, SIZE_MAX).status().code(), StatusCode::kTooLarge);
  EXPECT_EQ(api.map_rw_calls, 0);
  std::vector<uint8_t> largest(kMaxCodeBytes, 0x90);
  largest.back() = 0xc3;
  EXPECT_TRUE(publish(memory, largest).ok());
}

TEST(CodeMemoryTest, UnmappedWithTheLastOwner) {
  const FakeMemory api;
  const CodeMemory memory(api);
  Result<Block> block = publish(memory, return_constant(7));
  ASSERT_TRUE(block.ok());
  const void* entry = (*block)->entry();
  EXPECT_EQ(api.live_mappings, 1);  // the probe's is gone already
  Block second = *block;
  block = Status(StatusCode::kInternal, "");
  EXPECT_EQ(api.live_mappings, 1);
  EXPECT_EQ(call(*second), 7u);
  second.reset();
  EXPECT_EQ(api.live_mappings, 0);
  EXPECT_NE(rights_at(entry), "r-xp");
}

TEST(CodeMemoryTest, BlocksOutliveTheCodeMemory) {
  Block block;
  {
    const CodeMemory memory;
    block = *publish(memory, return_constant(11));
  }
  EXPECT_EQ(call(*block), 11u);
}

TEST(CodeMemoryTest, ProbeRunsOncePerStateAndIsSharedByCopies) {
  const FakeMemory api;
  const CodeMemory memory(api);
  EXPECT_EQ(api.map_rw_calls, 0) << "a constructor must not touch the machine";
  ASSERT_TRUE(publish(memory, return_constant(1)).ok());
  EXPECT_EQ(api.map_rw_calls, 2);
  const CodeMemory copy = memory;
  ASSERT_TRUE(publish(copy, return_constant(1)).ok());
  EXPECT_EQ(api.map_rw_calls, 3);
}

class MprotectRefusedTest : public testing::TestWithParam<int> {};

TEST_P(MprotectRefusedTest, MemfdTakesOver) {
  FakeMemory api;
  api.protect_error = GetParam();
  const CodeMemory memory(api);
  {
    const size_t page = api.page_bytes();
    const Result<Block> block = publish(memory, return_constant(99));
    ASSERT_TRUE(block.ok()) << block.status().text();
    EXPECT_EQ(call(**block), 99u);
    EXPECT_EQ(rights_at((*block)->entry()), "r-xp");
    const auto* bytes = static_cast<const uint8_t*>((*block)->entry());
    for (size_t i = (*block)->size(); i < page; ++i) ASSERT_EQ(bytes[i], 0xcc) << i;
    EXPECT_EQ(api.live_mappings, 1);
    EXPECT_EQ(api.open_files, 0);
    EXPECT_EQ(api.protect_calls, 1) << "a refusal is not asked for again: SELinux logs each";
  }
  EXPECT_EQ(api.live_mappings, 0);
}

TEST_P(MprotectRefusedTest, AndMemfdRefusedIsAStatusThatNamesBoth) {
  for (int step = 0; step < 3; ++step) {
    FakeMemory api;
    api.protect_error = GetParam();
    (step == 0 ? api.memfd_error : step == 1 ? api.write_error : api.map_fd_error) = EPERM;
    const CodeMemory memory(api);
    for (int call = 0; call < 2; ++call) {
      const Result<Block> block = publish(memory, return_constant(1));
      ASSERT_FALSE(block.ok());
      EXPECT_EQ(block.status().code(), StatusCode::kJitUnavailable);
      EXPECT_EQ(block.status().value(0), GetParam());
      EXPECT_EQ(block.status().value(1), EPERM);
      const std::string text = block.status().text();
      for (const char* word : {"mprotect", "{0}", "memfd", "{1}", "SELinux", "execmem"}) {
        EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
      }
    }
    EXPECT_EQ(api.protect_calls, 1) << "the refusal is final";
    EXPECT_EQ(api.live_mappings, 0);
    EXPECT_EQ(api.open_files, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Errnos, MprotectRefusedTest, testing::Values(EACCES, EPERM),
                         [](const auto& row) { return row.param == EACCES ? "EACCES" : "EPERM"; });

TEST(CodeMemoryTest, MapRefusedAlsoGoesToMemfd) {
  FakeMemory api;
  api.map_rw_error = EPERM;
  const CodeMemory memory(api);
  const Result<Block> block = publish(memory, return_constant(5));
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(call(**block), 5u);
}

TEST(CodeMemoryTest, MemfdWithoutTheExecFlagOnOldKernels) {
  FakeMemory api;
  api.protect_error = EACCES;
  api.memfd_refused_flags = 0x11;  // MFD_CLOEXEC | MFD_EXEC, unknown before Linux 6.3
  api.memfd_refused_error = EINVAL;
  const CodeMemory memory(api);
  const Result<Block> block = publish(memory, return_constant(5));
  ASSERT_TRUE(block.ok()) << block.status().text();
  EXPECT_EQ(call(**block), 5u);
  EXPECT_EQ(api.last_memfd_flags, 1u);
}

TEST(CodeMemoryTest, MemfdExecDeniedIsNotRetriedWithout) {
  FakeMemory api;
  api.protect_error = EACCES;
  api.memfd_refused_flags = 0x11;
  api.memfd_refused_error = EACCES;  // vm.memfd_noexec=2
  const CodeMemory memory(api);
  EXPECT_EQ(publish(memory, return_constant(5)).status().code(), StatusCode::kJitUnavailable);
  EXPECT_EQ(api.memfd_calls, 1);
}

// Want of memory at any step: an error now, and success once there is memory again.
TEST(CodeMemoryTest, ShortageIsNotFinal) {
  struct Step {
    const char* name;
    int FakeMemory::*error;
    bool on_memfd;
  };
  const Step steps[] = {{"map_rw", &FakeMemory::map_rw_error, false},
                        {"protect_rx", &FakeMemory::protect_error, false},
                        {"create_memfd", &FakeMemory::memfd_error, true},
                        {"write_fd", &FakeMemory::write_error, true},
                        {"map_fd_rx", &FakeMemory::map_fd_error, true}};
  for (const Step& step : steps) {
    for (const bool after_probe : {false, true}) {
      SCOPED_TRACE(std::string(step.name) + (after_probe ? " after the probe" : " in the probe"));
      FakeMemory api;
      if (step.on_memfd) api.protect_error = EACCES;
      const CodeMemory memory(api);
      if (after_probe) {
        ASSERT_TRUE(publish(memory, return_constant(1)).ok());
      }
      api.*step.error = ENOMEM;
      const Status status = publish(memory, return_constant(1)).status();
      EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.text();
      EXPECT_EQ(status.value(0), ENOMEM);
      EXPECT_EQ(api.live_mappings, 0);
      EXPECT_EQ(api.open_files, 0);
      api.*step.error = 0;
      EXPECT_TRUE(publish(memory, return_constant(1)).ok());
    }
  }
}

TEST(CodeMemoryTest, OtherErrnosAreNamed) {
  FakeMemory api;
  api.protect_error = EINVAL;
  const CodeMemory memory(api);
  const Status status = publish(memory, return_constant(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kJitUnavailable);
  EXPECT_EQ(status.value(0), EINVAL);
  EXPECT_EQ(api.memfd_calls, 0);
  EXPECT_EQ(api.live_mappings, 0);
}

// Some hardened systems report success and withhold the right (reliability.md, J2).
TEST(CodeMemoryTest, SuccessWithoutExecutionGoesToMemfd) {
  FakeMemory api;
  api.protect_error = FakeMemory::kPretend;
  const CodeMemory memory(api);
  for (uint32_t value : {1u, 2u, 3u}) {
    const Result<Block> block = publish(memory, return_constant(value));
    ASSERT_TRUE(block.ok()) << block.status().message();
    EXPECT_EQ(call(**block), value);
    EXPECT_EQ(rights_at((*block)->entry()), "r-xp");
  }
  EXPECT_EQ(api.protect_calls, 1) << "the way that lies is not tried again";
  EXPECT_EQ(api.may_execute_calls, 2) << "once for each way, not for each kernel";
}

TEST(CodeMemoryTest, SuccessWithoutExecutionBothWaysIsAStatus) {
  FakeMemory api;
  api.protect_error = FakeMemory::kPretend;
  api.map_fd_error = FakeMemory::kPretend;
  const CodeMemory memory(api);
  for (int i = 0; i < 2; ++i) {
    const Status status = publish(memory, return_constant(1)).status();
    EXPECT_EQ(status.code(), StatusCode::kJitUnavailable);
    EXPECT_NE(status.message().find("withheld"), std::string::npos) << status.message();
  }
  EXPECT_EQ(api.memfd_calls, 1);
  EXPECT_EQ(api.live_mappings, 0);
}

TEST(CodeMemoryTest, SuccessWithoutExecutionAndNoMemfdIsAStatusThatNamesBoth) {
  FakeMemory api;
  api.protect_error = FakeMemory::kPretend;
  api.memfd_error = EPERM;
  const CodeMemory memory(api);
  const Status status = publish(memory, return_constant(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kJitUnavailable);
  EXPECT_EQ(status.value(0), EPERM);
  EXPECT_NE(status.message().find("mprotect(PROT_EXEC) reports success"), std::string::npos)
      << status.message();
}

// A policy may tighten between the probe and a later kernel.
TEST(CodeMemoryTest, RefusalAfterTheProbeAlsoGoesToMemfd) {
  FakeMemory api;
  const CodeMemory memory(api);
  ASSERT_TRUE(publish(memory, return_constant(1)).ok());
  api.protect_error = EACCES;
  const Result<Block> block = publish(memory, return_constant(2));
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(call(**block), 2u);
}

// Samples the kernel's view while several threads publish through both ways.
class NeverWritableAndExecutableTest : public testing::TestWithParam<bool> {};

TEST_P(NeverWritableAndExecutableTest, WhileBlocksArePublished) {
  constexpr int kThreads = 8;
  constexpr int kBlocks = 1000;
  FakeMemory api;
  if (GetParam()) api.protect_error = EACCES;
  const CodeMemory memory(api);
  std::atomic<int> running{kThreads};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Block> keep;
      for (int i = t; i < kBlocks; i += kThreads) {
        const Result<Block> block = publish(memory, return_constant(static_cast<uint32_t>(i)));
        if (!block.ok() || call(**block) != static_cast<uint32_t>(i)) {
          ++failures;
        } else if (i % 3 != 0) {
          keep.push_back(*block);
        }
      }
      --running;
    });
  }
  int samples = 0;
  bool more = true;
  while (more) {
    more = running > 0;  // the last look is taken after the last block
    ++samples;
    for (const MapLine& line : proc_maps()) {
      const bool both =
          line.rights.find('w') != std::string::npos && line.rights.find('x') != std::string::npos;
      EXPECT_FALSE(both) << line.text;
    }
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(api.live_mappings, 0);
  EXPECT_EQ(api.open_files, 0);
  RecordProperty("samples", samples);
}

INSTANTIATE_TEST_SUITE_P(Ways, NeverWritableAndExecutableTest, testing::Bool(),
                         [](const auto& row) { return row.param ? "memfd" : "mprotect"; });

}  // namespace
}  // namespace quern::jit
