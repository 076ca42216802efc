#include "bench/plan_text.h"

#include <cstdio>
#include <sstream>

namespace quern::bench {

std::string kernel_name(const std::string& explanation, int64_t m) {
  // "  kernel int8_gemm.avx512....mr6.nr4.pf1.epi=none and its tails"
  // "  m 17..32: mr 6, ..., kernel int8_gemm.avx512....mr6.nr4.pf1.epi=none (compiled-in
  // defaults)", the last with no end
  std::string last;
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);) {
    long long from = 0, to = 0;
    const size_t kernel = line.find("kernel ");
    if (kernel == std::string::npos) continue;
    const size_t name = kernel + 7;
    last = line.substr(name, line.find(' ', name) - name);
    if (sscanf(line.c_str(), "  m %lld..%lld", &from, &to) >= 1 && m >= from &&
        (to == 0 || m <= to)) {
      return last;
    }
  }
  return last.empty() ? explanation.substr(0, explanation.find('\n')) : last;
}

IsaLevel level_of_kernel(const std::string& kernel) {
  for (const IsaLevel level : {IsaLevel::kAvx512, IsaLevel::kAmx}) {
    if (kernel.find(std::string(".") + to_string(level) + ".") != std::string::npos) return level;
  }
  return IsaLevel::kNone;
}

std::string why_not(const std::string& explanation, IsaLevel level) {
  const std::string refused = std::string("  ") + to_string(level) + ": refused: ";
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(refused, 0) == 0) return line.substr(refused.size());
  }
  return "the plan has no kernel of that level for this problem";
}

}  // namespace quern::bench
