// Runs a program that is refused executable memory beyond what its files bring along.
//   quern_deny_exec ERRNO PROGRAM ARGUMENTS...    the errno of mprotect(PROT_EXEC) and
//   memfd_create;
//                                                 0: mprotect reports success and does nothing
// Exit status 77 where the system allows no such policy.
#include "tests/support/deny_exec.h"

#include <errno.h>
#include <unistd.h>

#include <cstdlib>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto error = static_cast<uint32_t>(std::atoi(argv[1]));
  if (!quern::test::deny_memfd(error == 0 ? EPERM : error)) return 77;
  if (!quern::test::deny_exec(SECCOMP_RET_ERRNO | error, false)) return 77;
  execvp(argv[2], argv + 2);
  return 127;
}
