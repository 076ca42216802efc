#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "model_smoke/linear.h"
#include "quern/int4_gemm.h"
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

inline Int4Activations int4_activations(const ComputeMode& mode) noexcept {
  return mode.act == ActMode::kInt8 ? Int4Activations::kDynamicS8 : Int4Activations::kBF16;
}

/// The op that multiplies a format, as its problem strings name it.
inline const char* op_name(ModuleFormat format) noexcept {
  switch (format) {
    case ModuleFormat::kPlain:
      return "bf16_gemm";
    case ModuleFormat::kInt8:
      return "int8_gemm";
    case ModuleFormat::kInt4:
      return "int4_gemm";
    case ModuleFormat::kFp8:
      return "fp8_gemm";
    case ModuleFormat::kFp4:
      return "fp4_gemm";
  }
  return "?";
}
/// What that op multiplies the weights with.
inline const char* act_name(const LinearSource& s) noexcept {
  const bool integers =
      s.weights.format == ModuleFormat::kInt8 || s.weights.format == ModuleFormat::kInt4;
  return integers ? to_string(s.mode.act) : "bf16";
}
/// What a source says to int4_gemm of its weights.
inline void describe_weights(const HostInt4& int4, Int4GemmDesc& desc) noexcept {
  desc.group = int4.form.group;
  desc.zeros = int4.form.zeros;
  desc.scale = int4.form.scale;
  desc.act_order = int4.form.act_order();
}

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
