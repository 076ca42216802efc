#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "model_smoke/linear.h"
#include "quern/int8_activations.h"
#include "quern/status.h"

namespace quern::smoke {

// What stands behind make_linear_op and make_gate_up_op. The two backends:

std::unique_ptr<LinearOp> make_jit_op(const Context& ctx, LinearSource source);
/// What the generated op of a source is called: "int8_gemm n 512 k 256 (act int8)".
std::string describe_jit_op(const LinearSource& source);
std::unique_ptr<LinearOp> make_reference_op(const Context& ctx, LinearSource source);

/// The one of the source's mode.
std::unique_ptr<LinearOp> make_backend_op(const Context& ctx, LinearSource source);
/// That, planned and packed and then let go; where it is refused, the reason is kept.
std::unique_ptr<LinearOp> make_inspected_op(const Context& ctx, LinearSource source);

/// Weights in memory of their own. Explicit, because they are large.
HostWeights copy(const HostWeights& from);
LinearSource copy(const LinearSource& from);

/// Plain f32 values (an F16 or F32 file) rounded to what bf16 ops take.
void to_bf16(HostWeights& weights);

inline Int8Activations int8_activations(const ComputeMode& mode) noexcept {
  return mode.act == ActMode::kInt8 ? Int8Activations::kDynamicS8 : Int8Activations::kBF16;
}

/// A refusal of an op, with the module in front of its message.
struct OpRefused : std::runtime_error {
  OpRefused(const std::string& module, const std::string& text)
      : std::runtime_error(module + ": " + text), reason(text) {}
  std::string reason;
};

inline void check(const Status& status, const std::string& module) {
  if (!status.ok()) throw OpRefused(module, status.message());
}
template <typename T>
T take(Result<T> result, const std::string& module) {
  check(result.status(), module);
  return std::move(result).value();
}

}  // namespace quern::smoke
