#include "ops/dispatch.h"

namespace quern::inline v0 {
namespace {

const char* refuse_avx512(const ContextImpl& ctx) {
  if (ctx.level < IsaLevel::kAvx512) {
    return ctx.report.level >= IsaLevel::kAvx512
               ? "the level is capped to none (ContextOptions::max_isa, QUERN_MAX_ISA)"
               : "this machine has no usable AVX-512 F/BW/DQ/VL with VNNI "
                 "(quern-smoke doctor names the failed stage)";
  }
  if (!ctx.features.bmi2) return "this machine has no BMI2";
  return nullptr;
}

const char* refuse_amx(const ContextImpl& ctx) {
  if (ctx.level >= IsaLevel::kAmx) return nullptr;
  return ctx.options.max_isa < IsaLevel::kAmx
             ? "the level is capped below amx (ContextOptions::max_isa, QUERN_MAX_ISA)"
             : "this machine has no usable AMX (quern-smoke doctor names the failed stage)";
}

}  // namespace

const Candidate* Dispatch::chosen() const noexcept {
  for (const Candidate& c : candidates) {
    if (c.refused == nullptr) return &c;
  }
  return nullptr;
}

std::string Dispatch::explain() const {
  std::string text;
  for (const Candidate& c : candidates) {
    text += "  ";
    text += c.family;
    if (c.refused != nullptr) {
      text += ": refused: " + std::string(c.refused) + '\n';
    } else if (c.few_rows != 0) {
      text += ": chosen for m 1.." + std::to_string(c.few_rows) + '\n';
    } else {
      text += ": chosen\n";
    }
  }
  return text;
}

Dispatch choose_family(const ContextImpl& ctx, const char* no_amx, int64_t few_rows) {
  Dispatch dispatch;
  const char* const avx512 = refuse_avx512(ctx);
  // AMX kernels use AVX-512 as well.
  const char* const amx = no_amx != nullptr ? no_amx : avx512 != nullptr ? avx512 : refuse_amx(ctx);
  const bool stands_back = amx == nullptr && few_rows == 0;
  dispatch.candidates = {
      {"amx", IsaLevel::kAmx, amx},
      {"avx512", IsaLevel::kAvx512,
       stands_back ? "amx is preferred, and adds up in another order" : avx512,
       amx == nullptr ? few_rows : 0},
      {"reference", IsaLevel::kNone, "only on explicit request: link quern::reference"},
  };
  // The reason that the caller can act on is the avx512 family's.
  if (dispatch.chosen() == nullptr) {
    dispatch.status =
        Status(StatusCode::kUnsupported, "no kernel family can run: {s}", 0, 0, avx512);
  }
  return dispatch;
}

}  // namespace quern::inline v0
