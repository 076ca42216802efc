#pragma once

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace quern::jit {

/// Exit status of `body` in a child that is killed after 20 s; 1000 + signal when it was killed.
inline int in_child(const std::function<int()>& body) {
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

}  // namespace quern::jit
