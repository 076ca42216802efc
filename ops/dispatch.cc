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
    text += c.refused == nullptr ? ": chosen\n" : ": refused: " + std::string(c.refused) + '\n';
  }
  return text;
}

Dispatch choose_family(const ContextImpl& ctx) {
  Dispatch dispatch;
  const char* const avx512 = refuse_avx512(ctx);
  dispatch.candidates = {
      {"amx", IsaLevel::kAmx, "no AMX generator in this version of quern"},
      {"avx512", IsaLevel::kAvx512, avx512},
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
