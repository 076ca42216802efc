// Code memory under real policies of the kernel, each in a child process of its own: the policies
// cannot be lifted again. The child reports through its exit status.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "jit/code_memory.h"
#include "tests/jit/child_process.h"
#include "tests/jit/code_samples.h"
#include "tests/support/deny_exec.h"

namespace quern::jit {
namespace {

using test::deny_exec;

constexpr int kCannotTest = 77;

/// 0: published and ran; 1: refused with kJitUnavailable; 2: another failure; 3: wrong answer.
int publish_and_call(const CodeMemory& memory) {
  const std::vector<uint8_t> code = return_constant(1234);
  const Result<std::shared_ptr<const CodeBlock>> block = memory.publish(code.data(), code.size());
  if (!block.ok()) return block.status().code() == StatusCode::kJitUnavailable ? 1 : 2;
  return call(**block) == 1234 ? 0 : 3;
}

TEST(CodeMemoryPolicyTest, ForkedChildRunsTheParentsCode) {
  const CodeMemory memory;
  const std::vector<uint8_t> code = return_constant(1234);
  const auto block = memory.publish(code.data(), code.size());
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(in_child([&] {
              if (call(**block) != 1234) return 3;
              return in_child([&] { return publish_and_call(memory); });  // and makes its own
            }),
            0);
  EXPECT_EQ(call(**block), 1234u);
}

// SELinux and systemd's MemoryDenyWriteExecute refuse mprotect and allow files.
TEST(CodeMemoryPolicyTest, SeccompDeniesMprotectOnly) {
  for (const int error : {EACCES, EPERM}) {
    const int rc = in_child([error] {
      if (!deny_exec(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error), false)) return kCannotTest;
      return publish_and_call(CodeMemory());
    });
    if (rc == kCannotTest) GTEST_SKIP() << "this system allows no seccomp filter";
    EXPECT_EQ(rc, 0) << "errno " << error;
  }
}

// An errno of 0: the call does nothing and reports success.
TEST(CodeMemoryPolicyTest, SeccompPretendsMprotect) {
  const int rc = in_child([] {
    if (!deny_exec(SECCOMP_RET_ERRNO | 0, false)) return kCannotTest;
    return publish_and_call(CodeMemory());
  });
  if (rc == kCannotTest) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(rc, 0);
}

TEST(CodeMemoryPolicyTest, SeccompDeniesEveryExec) {
  for (const int error : {EACCES, EPERM}) {
    const int rc = in_child([error] {
      if (!deny_exec(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error), true)) return kCannotTest;
      return publish_and_call(CodeMemory());
    });
    if (rc == kCannotTest) GTEST_SKIP() << "this system allows no seccomp filter";
    EXPECT_EQ(rc, 1) << "errno " << error;
  }
}

// Who switches JIT off makes no publish: then nothing here may ask for executable memory.
TEST(CodeMemoryPolicyTest, ConstructionSurvivesAKillPolicy) {
  const int rc = in_child([] {
    if (!deny_exec(SECCOMP_RET_KILL_PROCESS, true)) return kCannotTest;
    const CodeMemory memory;
    const CodeMemory copy = memory;
    return copy.publish(nullptr, 0).ok() ? 2 : 0;
  });
  if (rc == kCannotTest) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(rc, 0);
}

TEST(CodeMemoryPolicyTest, MemoryDenyWriteExecute) {
  constexpr int kPrSetMdwe = 65;            // Linux 6.3
  constexpr unsigned long kRefuseGain = 1;  // PR_MDWE_REFUSE_EXEC_GAIN
  const int rc = in_child([] {
    if (prctl(kPrSetMdwe, kRefuseGain, 0, 0, 0) != 0) return kCannotTest;
    return publish_and_call(CodeMemory());
  });
  if (rc == kCannotTest) GTEST_SKIP() << "this kernel has no PR_SET_MDWE";
  EXPECT_EQ(rc, 0);
}

}  // namespace
}  // namespace quern::jit
