#include "bench/peer_child.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "bench/peer_onednn.h"
#include "bench/timing.h"

#ifdef QUERN_BENCH_ONEDNN

#include <fmt/format.h>

namespace quern::bench {
namespace {

void answer(FILE* out, const std::string& line) {
  fmt::print(out, "{}\n", line);
  std::fflush(out);
}

/// A reason must stay one line.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

void serve_setup(FILE* out, const std::string& text, std::unique_ptr<OneDnnProblem>* current) {
  current->reset();  // its weights, before the next ones are made
  size_t cold_bytes = 0;
  const size_t space = text.find(' ');
  if (space == std::string::npos || sscanf(text.c_str(), "%zu", &cold_bytes) != 1) {
    return answer(out, "none setup without cold bytes");
  }
  const Result<Problem> problem = parse_problem(text.substr(space + 1));
  if (!problem.ok()) return answer(out, "none " + one_line(problem.status().message()));
  try {
    *current = OneDnnProblem::create(*problem, cold_bytes);
    answer(out, "ready " + one_line((*current)->kernel()));
  } catch (const std::exception& e) {
    answer(out, "none " + one_line(e.what()));
  }
}

void serve_block(FILE* out, const std::string& arguments, OneDnnProblem* current) {
  BlockBudget budget;
  if (current == nullptr || sscanf(arguments.c_str(), "%lf %d %lf", &budget.seconds,
                                   &budget.min_calls, &budget.warm_seconds) != 3) {
    return answer(out, "none block without setup");
  }
  try {
    const Stats stats = summarize(time_block(budget, [&] { return current->run(), true; }));
    answer(out, fmt::format("time {} {} {}", stats.median, stats.mad, stats.count));
  } catch (const std::exception& e) {
    answer(out, "none " + one_line(e.what()));
  }
}

}  // namespace

bool onednn_built() {
  return true;
}

int run_onednn_child() {
  FILE* out = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  if (out == nullptr) return 2;
  answer(out, "hello " + onednn_name());
  std::unique_ptr<OneDnnProblem> current;
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (word == "setup") {
      serve_setup(out, rest, &current);
    } else if (word == "block") {
      serve_block(out, rest, current.get());
    } else {
      answer(out, "none unknown request");
    }
  }
  return 0;
}

}  // namespace quern::bench

#else

namespace quern::bench {

bool onednn_built() {
  return false;
}

int run_onednn_child() {
  std::cerr << "quern-bench was built without oneDNN\n";
  return 2;
}

}  // namespace quern::bench

#endif
