#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/memory_plan.h"
#include "bench/roofline.h"
#include "quern/bf16_gemm.h"
#include "quern/bmm.h"
#include "quern/context.h"
#include "quern/fp4_gemm.h"
#include "quern/fp8_gemm.h"
#include "quern/int4_gemm.h"
#include "quern/int8_gemm.h"
#include "quern/problem.h"
#include "quern/quantize_rows.h"

namespace quern::bench {

/// The op refused the problem; the text is its Status.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The value, or its Status as a CaseError.
template <typename T>
T created(Result<T> result) {
  if (!result.ok()) throw CaseError(result.status().message());
  return *std::move(result);
}

/// What a case is made in.
struct CaseEnv {
  const Context& context;
  MemoryPlan memory;
};

/// What a comparison with the reference found.
struct CheckResult {
  bool ok = true;
  bool exact = true;     ///< every element had to be equal bit for bit; else some had a bound
  int64_t compared = 0;  ///< elements of the output
  int64_t total = 0;     ///< elements there are
  std::string detail;    ///< the first element that is wrong
};

/// A problem with its operands, ready to be called over and over.
class OpCase {
 public:
  virtual ~OpCase() = default;

  /// One call of the op, with the operand copy that is the `call`-th in turn.
  virtual Status run(int64_t call) = 0;
  /// The output as the last run left it, against the reference: all of a small problem, rows and
  /// columns spread over a large one.
  virtual CheckResult check() const = 0;
  virtual std::span<const std::byte> output() const = 0;

  virtual Work work() const = 0;
  /// What the plan says about itself.
  virtual std::string explain() const = 0;
  virtual int64_t copies() const = 0;
};

/// What `count` products of the problem's M x N x K have to do, with weights of `bytes` in all.
Work work_of_products(const Problem& problem, int64_t count, size_t bytes, Peak peak,
                      const MemoryPlan& memory);

using CaseFactory = std::function<std::unique_ptr<OpCase>(const Problem&, const CaseEnv&)>;

/// Makes the case for problem.op. Throws CaseError.
std::unique_ptr<OpCase> make_case(const Problem& problem, const CaseEnv& env);
/// What the plan for the problem says about itself, without operands. Throws CaseError.
std::string explain(const Problem& problem, const Context& ctx);

/// The op that a case calls; a test puts a wrong one in its place to see that the check finds it.
using Int4Call = std::function<Status(const Int4Gemm&, const Int4GemmArgs&, Span<std::byte>)>;
using Fp4Call = std::function<Status(const Fp4Gemm&, const Fp4GemmArgs&, Span<std::byte>)>;
using Fp8Call = std::function<Status(const Fp8Gemm&, const Fp8GemmArgs&, Span<std::byte>)>;
using Int8Call = std::function<Status(const Int8Gemm&, const Int8GemmArgs&, Span<std::byte>)>;
using Bf16Call = std::function<Status(const Bf16Gemm&, const Bf16GemmArgs&, Span<std::byte>)>;
using BmmCall = std::function<Status(const Bmm&, const BmmArgs&, Span<std::byte>)>;
using QuantizeCall = std::function<Status(const QuantizeRows&, const QuantizeRowsArgs&)>;

std::unique_ptr<OpCase> make_int4_case(const Problem& problem, const CaseEnv& env,
                                       Int4Call call = nullptr);
std::unique_ptr<OpCase> make_fp4_case(const Problem& problem, const CaseEnv& env,
                                      Fp4Call call = nullptr);
std::unique_ptr<OpCase> make_fp8_case(const Problem& problem, const CaseEnv& env,
                                      Fp8Call call = nullptr);
std::unique_ptr<OpCase> make_int8_case(const Problem& problem, const CaseEnv& env,
                                       Int8Call call = nullptr);
std::unique_ptr<OpCase> make_bf16_case(const Problem& problem, const CaseEnv& env,
                                       Bf16Call call = nullptr);
std::unique_ptr<OpCase> make_bmm_case(const Problem& problem, const CaseEnv& env,
                                      BmmCall call = nullptr);
std::unique_ptr<OpCase> make_quantize_case(const Problem& problem, const CaseEnv& env,
                                           QuantizeCall call = nullptr);
std::string explain_int4(const Problem& problem, const Context& ctx);
std::string explain_fp4(const Problem& problem, const Context& ctx);
std::string explain_fp8(const Problem& problem, const Context& ctx);
std::string explain_int8(const Problem& problem, const Context& ctx);
std::string explain_bf16(const Problem& problem, const Context& ctx);
std::string explain_bmm(const Problem& problem, const Context& ctx);
std::string explain_quantize(const Problem& problem, const Context& ctx);

/// Problems that leave the level open get the one of the kernel that will run them, so that names
/// tell the truth. What cannot run stays as it is; its row says why.
void resolve_levels(const Context& ctx, std::vector<Problem>* problems);

}  // namespace quern::bench
