#include "bench/op_case.h"

#include <cstdio>
#include <map>
#include <sstream>
#include <string>

namespace quern::bench {

namespace {

struct Entry {
  const char* op;
  std::unique_ptr<OpCase> (*make)(const Problem&, const CaseEnv&);
  std::string (*explain)(const Problem&, const Context&);
};

constexpr Entry kEntries[] = {
    {"int8_gemm", [](const Problem& p, const CaseEnv& e) { return make_int8_case(p, e); },
     explain_int8},
    {"bf16_gemm", [](const Problem& p, const CaseEnv& e) { return make_bf16_case(p, e); },
     explain_bf16},
    {"quantize_rows", [](const Problem& p, const CaseEnv& e) { return make_quantize_case(p, e); },
     explain_quantize},
};

const Entry& entry_of(const std::string& op) {
  for (const Entry& entry : kEntries) {
    if (op == entry.op) return entry;
  }
  throw CaseError("no benchmark for op '" + op + "'");
}

}  // namespace

std::unique_ptr<OpCase> make_case(const Problem& problem, const CaseEnv& env) {
  return entry_of(problem.op).make(problem, env);
}

std::string explain(const Problem& problem, const Context& ctx) {
  return entry_of(problem.op).explain(problem, ctx);
}

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

void resolve_levels(const Context& ctx, std::vector<Problem>* problems) {
  std::map<std::string, std::string> explained;  // creating a plan generates its kernels: once each
  for (Problem& p : *problems) {
    if (p.isa != IsaLevel::kNone) continue;
    Problem plan = p;  // what a plan is made from
    plan.m = 0;
    plan.threads = 0;
    plan.cold = false;
    const auto [entry, is_new] = explained.try_emplace(to_string(plan));
    try {
      if (is_new) entry->second = explain(plan, ctx);
      p.isa = level_of_kernel(kernel_name(entry->second, p.m));
    } catch (const CaseError&) {
      // Its row will give the reason.
    }
  }
}

}  // namespace quern::bench
