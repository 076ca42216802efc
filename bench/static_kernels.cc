#include "bench/static_kernels.h"

#include <optional>
#include <string_view>
#include <utility>

#include "bench/static_trace.h"
#include "bench/usage_error.h"
#include "jit/bf16_gemm_amx.h"
#include "jit/bf16_gemm_avx512.h"
#include "jit/bf16_gemm_fma_avx512.h"
#include "jit/gemm_args.h"
#include "jit/int8_gemm_amx.h"
#include "jit/int8_gemm_avx512.h"

namespace quern::bench {
namespace {

/// The kernel, where `parse` knows its name.
template <typename Config>
std::optional<StaticKernel> kernel_of(const std::string& name,
                                      std::optional<Config> (*parse)(std::string_view),
                                      int tile_depth) {
  const std::optional<Config> config = parse(name);
  if (!config) return std::nullopt;
  if (const char* rule = jit::invalid(*config)) throw UsageError("--static " + name + ": " + rule);
  Result<jit::GeneratedCode> code = jit::generate(*config);
  if (!code.ok()) throw UsageError("--static " + name + ": " + code.status().message());
  const bool pairs = config->epilogue.activation == Activation::kSiluMul;
  return StaticKernel{std::move(*code), config->mr,     16 * (pairs ? config->nr / 2 : config->nr),
                      config->nr,       tile_depth > 0, tile_depth};
}

int64_t ceil_div(int64_t x, int64_t y) {
  return (x + y - 1) / y;
}

}  // namespace

StaticKernel static_kernel(const std::string& name) {
  if (auto k = kernel_of(name, &jit::parse_int8_gemm_amx, 64)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_bf16_gemm_amx, 32)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_int8_gemm_avx512, 0)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_bf16_gemm_avx512, 0)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_bf16_gemm_fma_avx512, 0)) return *std::move(k);
  throw UsageError("--static " + name +
                   ": no name of a GEMM kernel, such as "
                   "int8_gemm.amx.s8u8bf16.mr32.nr2.pf0.epi=none");
}

std::vector<std::string> default_static_kernels() {
  std::vector<std::string> names;
  for (const char* family :
       {"int8_gemm.amx.s8u8", "bf16_gemm.amx.bf16bf16", "bf16_gemm.amx.bf16u8"}) {
    // A single block of rows fetches every line it reads: the most that plans ask of a K loop.
    for (const char* c : {"bf16", "f32"}) {
      for (const char* epilogue : {"none", "bias", "silu_mul", "residual"}) {
        names.push_back(std::string(family) + c + ".mr32.nr2.pf8.epi=" + epilogue);
      }
    }
    // Many blocks of rows share the fetching; up to 16 rows, and the last block of more.
    for (const char* shape : {"mr32.nr2.pf1", "mr16.nr4.pf16", "mr16.nr2.pf1"}) {
      names.push_back(std::string(family) + "bf16." + shape + ".epi=none");
    }
  }
  return names;
}

CallModel model_of(const StaticKernel& kernel, const StaticCall& call) {
  jit::GemmArgs args;
  args.m = call.m;
  args.n = call.n;
  args.k = call.k;
  args.configure = call.alone;
  args.release = call.alone;
  const std::vector<CodeInstruction> code = decode(kernel.code);
  const auto* bytes = reinterpret_cast<const std::byte*>(&args);
  return model_call(code, trace_call(code, {bytes, sizeof args}), kernel.code.sections);
}

int64_t tile_dots_of(const StaticKernel& kernel, const StaticCall& call) {
  if (!kernel.tiles) return 0;
  // Whole panels, of gate and of up.
  const int64_t of_columns = kernel.panels;
  return ceil_div(call.m, 16) * of_columns * ceil_div(call.k, kernel.tile_depth);
}

}  // namespace quern::bench
