#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "model_smoke/linear.h"
#include "quern/int8_activations.h"
#include "quern/status.h"

namespace quern::smoke {

// The two backends behind make_linear_op and make_gate_up_op.

std::unique_ptr<LinearOp> make_jit_linear(const Context& ctx, const ComputeMode& mode,
                                          HostWeights weights, const LinearOutput& output);
std::unique_ptr<LinearOp> make_jit_gate_up(const Context& ctx, const ComputeMode& mode,
                                           HostWeights gate, HostWeights up);
std::unique_ptr<LinearOp> make_reference_linear(const Context& ctx, const ComputeMode& mode,
                                                HostWeights weights, const LinearOutput& output);
std::unique_ptr<LinearOp> make_reference_gate_up(const Context& ctx, const ComputeMode& mode,
                                                 HostWeights gate, HostWeights up);

/// Plain f32 values (an F16 or F32 file) rounded to what bf16 ops take.
void to_bf16(HostWeights& weights);

inline Int8Activations int8_activations(const ComputeMode& mode) noexcept {
  return mode.act == ActMode::kInt8 ? Int8Activations::kDynamicS8 : Int8Activations::kBF16;
}

/// Turns a refusal of an op into an exception that names the module.
inline void check(const Status& status, const std::string& module) {
  if (!status.ok()) throw std::runtime_error(module + ": " + status.message());
}
template <typename T>
T take(Result<T> result, const std::string& module) {
  check(result.status(), module);
  return std::move(result).value();
}

}  // namespace quern::smoke
