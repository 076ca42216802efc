#include "jit/gemm_epilogue.h"

namespace quern::jit {

std::string epilogue_name(const GemmEpilogue& epilogue) {
  std::string text;
  const auto add = [&text](const char* part) {
    if (!text.empty()) text += '+';
    text += part;
  };
  if (epilogue.bias) add("bias");
  if (epilogue.activation == Activation::kSiluMul) add("silu_mul");
  if (epilogue.residual) add("residual");
  return "epi=" + (text.empty() ? std::string("none") : text);
}

bool parse_epilogue(const std::string& text, GemmEpilogue* epilogue) {
  // Eight combinations: comparing with each keeps this the exact inverse of epilogue_name.
  for (int bits = 0; bits < 8; ++bits) {
    GemmEpilogue e = *epilogue;
    e.bias = (bits & 1) != 0;
    e.activation = (bits & 2) != 0 ? Activation::kSiluMul : Activation::kNone;
    e.residual = (bits & 4) != 0;
    if (epilogue_name(e) == text) {
      *epilogue = e;
      return true;
    }
  }
  return false;
}

const char* invalid_shape(int mr, int nr, int others, int prefetch, const GemmEpilogue& epilogue) {
  // The epilogue's silu_mul needs three registers beside the accumulators.
  constexpr int kEpilogueOthers = 4;
  if (mr < 1 || mr > 16) return "mr must be 1..16";
  if (nr < 1 || nr > 4) return "nr must be 1..4";
  if (mr * nr + (others > kEpilogueOthers ? others : kEpilogueOthers) > 32) {
    return "mr * nr accumulators and the operands must fit 32 vector registers";
  }
  if (prefetch < 0 || prefetch > (1 << 20) || prefetch % 64 != 0) {
    return "prefetch must be a multiple of 64 in 0..2^20";
  }
  if (epilogue.c != DType::kBF16 && epilogue.c != DType::kF32) return "c must be bf16 or f32";
  if (epilogue.activation == Activation::kSiluMul && nr % 2 != 0) {
    return "silu_mul needs pairs of gate and up panels: nr must be even";
  }
  return nullptr;
}

}  // namespace quern::jit
