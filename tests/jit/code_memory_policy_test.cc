// Code memory under real policies of the kernel, each in a child process of its own: the policies
// cannot be lifted again. The child reports through its exit status.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "jit/code_memory.h"
#include "tests/jit/code_samples.h"

namespace quern::jit {
namespace {

constexpr int kCannotTest = 77;

/// Exit status of `body` in a child; 1000 + signal when it was killed.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);  // or the child prints what is waiting a second time
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// 0: published and ran; 1: refused with kJitUnavailable; 2: another failure; 3: wrong answer.
int publish_and_call(const CodeMemory& memory) {
  const std::vector<uint8_t> code = return_constant(1234);
  const Result<std::shared_ptr<const CodeBlock>> block = memory.publish(code.data(), code.size());
  if (!block.ok()) return block.status().code() == StatusCode::kJitUnavailable ? 1 : 2;
  return call(**block) == 1234 ? 0 : 3;
}

/// From now on, mmap and mprotect with PROT_EXEC end as `action` says (only mprotect, if so asked).
bool deny_exec(uint32_t action, bool mmap_too) {
  constexpr uint32_t kProtArg = offsetof(seccomp_data, args[2]);  // of both calls, lower half
  const uint32_t first = mmap_too ? SYS_mmap : SYS_mprotect;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kProtArg),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
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
