#include "bench/op_case.h"

#include <map>
#include <string>

#include "bench/plan_text.h"

namespace quern::bench {

namespace {

struct Entry {
  const char* op;
  std::unique_ptr<OpCase> (*make)(const Problem&, const CaseEnv&);
  std::string (*explain)(const Problem&, const Context&);
};

constexpr Entry kEntries[] = {
    {"int4_gemm", [](const Problem& p, const CaseEnv& e) { return make_int4_case(p, e); },
     explain_int4},
    {"fp4_gemm", [](const Problem& p, const CaseEnv& e) { return make_fp4_case(p, e); },
     explain_fp4},
    {"fp8_gemm", [](const Problem& p, const CaseEnv& e) { return make_fp8_case(p, e); },
     explain_fp8},
    {"int8_gemm", [](const Problem& p, const CaseEnv& e) { return make_int8_case(p, e); },
     explain_int8},
    {"bf16_gemm", [](const Problem& p, const CaseEnv& e) { return make_bf16_case(p, e); },
     explain_bf16},
    {"bmm", [](const Problem& p, const CaseEnv& e) { return make_bmm_case(p, e); }, explain_bmm},
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

Work work_of_products(const Problem& problem, int64_t count, size_t bytes, Peak peak,
                      const MemoryPlan& memory) {
  Work work;
  work.ops = 2 * static_cast<double>(count) * static_cast<double>(problem.m) *
             static_cast<double>(problem.n) * static_cast<double>(problem.k);
  work.bytes = problem.m == 0 ? 0 : static_cast<double>(bytes);  // without rows nothing is read
  work.peak = peak;
  work.from_memory = problem.cold || bytes > memory.cache_bytes;
  return work;
}

std::unique_ptr<OpCase> make_case(const Problem& problem, const CaseEnv& env) {
  return entry_of(problem.op).make(problem, env);
}

std::string explain(const Problem& problem, const Context& ctx) {
  return entry_of(problem.op).explain(problem, ctx);
}

void resolve_levels(const Context& ctx, std::vector<Problem>* problems) {
  std::map<std::string, std::string> explained;  // creating a plan generates its kernels: once each
  for (Problem& p : *problems) {
    if (p.isa != IsaLevel::kNone) continue;
    Problem plan = p;  // what a plan is made from
    plan.batch = 0;
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
