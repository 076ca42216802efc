#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace quern::bench {

/// What a program left.
struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Runs `program` by the shell, with standard input closed.
inline Outcome run_program(const std::string& program, const std::string& arguments,
                           const std::string& environment = "") {
  const std::string base = testing::TempDir() + "/quern_run_" + std::to_string(getpid());
  const std::string line = environment + " '" + program + "' " + arguments + " >" + base +
                           ".out 2>" + base + ".err </dev/null";
  const int status = std::system(line.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(base + ".out"),
                  read_file(base + ".err")};
  std::remove((base + ".out").c_str());
  std::remove((base + ".err").c_str());
  return outcome;
}

}  // namespace quern::bench
