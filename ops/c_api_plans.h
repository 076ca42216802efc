#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ops/c_api_support.h"
#include "quern/isa.h"
#include "quern/span.h"

/// What the C functions of all ops share. A plan's handle is {pool, plan}.
namespace quern::inline v0 {

constexpr const char* kUnknownType = "{s} (dtype {0}) is unknown";

/// A plan of Op from the caller's desc: read(c_desc, *desc) -> Status.
template <typename Op, typename Desc, typename Handle, typename CDesc, typename Read>
int32_t create_plan(const quern_context* context, const CDesc* c_desc, Handle** out,
                    quern_status* status, Read read) noexcept {
  return c_create(out, status, [&](std::unique_ptr<Handle>* handle) -> Status {
    if (context == nullptr) return c_invalid("{s} is null", "context");
    CDesc from = {};
    if (const Status s = c_read(c_desc, "desc", &from); !s.ok()) return s;
    if (const Status s = c_reserved(from.reserved, "desc"); !s.ok()) return s;
    Desc desc;
    if (const Status s = read(from, &desc); !s.ok()) return s;
    auto plan = Op::create(context->context, desc);
    if (!plan.ok()) return plan.status();
    *handle = std::unique_ptr<Handle>(new Handle{context->pool, std::move(*plan)});
    return {};
  });
}

/// The fields that the descs of all GEMMs have.
template <typename CDesc, typename Desc>
Status read_gemm_desc(const CDesc& from, Desc* to) noexcept {
  to->n = from.n;
  to->k = from.k;
  return c_first(c_dtype(from.c, kUnknownType, "desc.c", &to->c),
                 c_flag(from.bias, "desc.bias", &to->epilogue.bias),
                 c_enum(from.activation, "desc.activation", &to->epilogue.activation),
                 c_flag(from.residual, "desc.residual", &to->epilogue.residual),
                 c_enum(from.invariance, "desc.invariance", &to->invariance));
}

/// The operands that the args of all GEMMs have.
template <typename CArgs, typename Args>
Status read_gemm_args(const CArgs& from, Args* to) noexcept {
  to->weights = from.weights == nullptr ? nullptr : &from.weights->weights;
  return c_first(c_matrix(from.a, "a", &to->a), c_matrix(from.c, "c", &to->c),
                 c_vector(from.bias, "bias", &to->bias),
                 c_matrix(from.residual, "residual", &to->residual));
}

/// Packed weights of a plan: pack(plan) -> Result<PackedWeights>.
template <typename Handle, typename Pack>
int32_t pack_weights(const Handle* plan, quern_packed_weights** out, quern_status* status,
                     Pack pack) noexcept {
  return c_create(out, status, [&](std::unique_ptr<quern_packed_weights>* handle) -> Status {
    if (plan == nullptr) return c_invalid("{s} is null", "plan");
    const Result<PackedWeights> weights = pack(plan->plan);
    if (!weights.ok()) return weights.status();
    *handle = std::make_unique<quern_packed_weights>();
    (*handle)->weights = *weights;
    return {};
  });
}

template <typename Handle>
int32_t level_of(const Handle* plan) noexcept {
  return static_cast<int32_t>(plan == nullptr ? IsaLevel::kNone : plan->plan.isa());
}

template <typename Handle>
char* explain_plan(const Handle* plan) noexcept {
  return c_string([&] {
    return plan == nullptr ? c_invalid("{s} is null", "plan").message() : plan->plan.explain();
  });
}

/// Runs a plan on the caller's args: read(c_args, *args) -> Status.
template <typename Args, typename Handle, typename CArgs, typename Read, typename Run>
int32_t run_plan(const Handle* plan, const CArgs* c_args, quern_status* status, Read read,
                 Run run) noexcept {
  return c_call(status, [&]() -> Status {
    if (plan == nullptr) return c_invalid("{s} is null", "plan");
    CArgs from = {};
    if (const Status s = c_read(c_args, "args", &from); !s.ok()) return s;
    Args args;
    if (const Status s = read(from, &args); !s.ok()) return s;
    return run(plan->plan, args);
  });
}

/// A GEMM with its scratch; `run_plan` for those.
template <typename Args, typename Handle, typename CArgs, typename Read>
int32_t run_gemm(const Handle* plan, const CArgs* c_args, void* scratch, size_t scratch_bytes,
                 quern_status* status, Read read) noexcept {
  const Span<std::byte> memory(static_cast<std::byte*>(scratch), scratch_bytes);
  return run_plan<Args>(plan, c_args, status, read,
                        [&](const auto& op, const Args& args) { return op.run(args, memory); });
}

}  // namespace quern::inline v0
