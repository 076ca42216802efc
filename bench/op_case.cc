#include "bench/op_case.h"

#include <cstdio>
#include <sstream>
#include <vector>

namespace quern::bench {

std::unique_ptr<OpCase> make_case(const Problem& problem, const Context& ctx) {
  if (problem.op == "int8_gemm") return make_int8_case(problem, ctx);
  if (problem.op == "bf16_gemm") return make_bf16_case(problem, ctx);
  if (problem.op == "quantize_rows") return make_quantize_case(problem, ctx);
  throw CaseError("no benchmark for op '" + problem.op + "'");
}

std::string kernel_name(const std::string& explanation, int64_t m) {
  // "  kernel int8_gemm.avx512....mr6.nr4.pf0.epi=none and its tails"
  // "  m 17..: mr 6, nr 4, mc 192, kc all, prefetch 0 (compiled-in defaults)", the last with no end
  std::vector<std::string> kernels;
  std::string block;
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);) {
    long long from = 0, to = 0;
    int mr = 0, nr = 0, prefetch = 0;
    if (line.rfind("  kernel ", 0) == 0) {
      kernels.push_back(line.substr(9, line.find(' ', 9) - 9));
    } else if (sscanf(line.c_str(), "  m %lld..%lld", &from, &to) >= 1 && m >= from &&
               (to == 0 || m <= to) && block.empty()) {
      const size_t mr_at = line.find(": mr "), prefetch_at = line.find("prefetch ");
      if (mr_at != std::string::npos && prefetch_at != std::string::npos &&
          sscanf(line.c_str() + mr_at, ": mr %d, nr %d", &mr, &nr) == 2 &&
          sscanf(line.c_str() + prefetch_at, "prefetch %d", &prefetch) == 1) {
        block = ".mr" + std::to_string(mr) + ".nr" + std::to_string(nr) + ".pf" +
                std::to_string(prefetch) + ".";
      }
    }
  }
  if (kernels.empty()) return explanation.substr(0, explanation.find('\n'));
  for (const std::string& kernel : kernels) {
    if (!block.empty() && kernel.find(block) != std::string::npos) return kernel;
  }
  return kernels.back();
}

}  // namespace quern::bench
