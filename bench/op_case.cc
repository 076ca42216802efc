#include "bench/op_case.h"

namespace quern::bench {

std::unique_ptr<OpCase> make_case(const Problem& problem, const Context& ctx) {
  if (problem.op == "int8_gemm") return make_int8_case(problem, ctx);
  if (problem.op == "bf16_gemm") return make_bf16_case(problem, ctx);
  if (problem.op == "quantize_rows") return make_quantize_case(problem, ctx);
  throw CaseError("no benchmark for op '" + problem.op + "'");
}

std::string kernel_name(const std::string& explanation, const std::string& op) {
  // Kernels are named <op>.<isa>.<...>, whatever stands around the name.
  const size_t begin = explanation.find(op + ".");
  if (begin != std::string::npos) {
    return explanation.substr(begin, explanation.find_first_of(" \t\n,;()", begin) - begin);
  }
  return explanation.substr(0, explanation.find('\n'));
}

}  // namespace quern::bench
