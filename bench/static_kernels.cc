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
#include "jit/grouped_decode_avx512.h"
#include "jit/grouped_gemm_amx.h"
#include "jit/grouped_gemm_avx512.h"
#include "jit/int8_gemm_amx.h"
#include "jit/int8_gemm_avx512.h"
#include "jit/nvfp4_decode_avx512.h"

namespace quern::bench {
namespace {

template <typename Config>
jit::GeneratedCode code_of(const std::string& name, const Config& config) {
  if (const char* rule = jit::invalid(config)) throw UsageError("--static " + name + ": " + rule);
  Result<jit::GeneratedCode> code = jit::generate(config);
  if (!code.ok()) throw UsageError("--static " + name + ": " + code.status().message());
  return std::move(*code);
}

template <typename Config>
StaticKernel kernel_of(const std::string& name, const Config& config, int tile_depth,
                       int group_step) {
  const bool pairs = config.epilogue.activation == Activation::kSiluMul;
  StaticKernel kernel;
  kernel.code = code_of(name, config);
  kernel.mr = config.mr;
  kernel.columns = 16 * (pairs ? config.nr / 2 : config.nr);
  kernel.panels = config.nr;
  kernel.tiles = tile_depth > 0;
  kernel.tile_depth = tile_depth;
  kernel.group_step = group_step;
  return kernel;
}

/// The kernel, where `parse` knows its name.
template <typename Config>
std::optional<StaticKernel> kernel_of(const std::string& name,
                                      std::optional<Config> (*parse)(std::string_view),
                                      int tile_depth) {
  const std::optional<Config> config = parse(name);
  if (!config) return std::nullopt;
  return kernel_of(name, *config, tile_depth, 0);
}

std::optional<StaticKernel> int4_kernel(const std::string& name) {
  if (const auto config = jit::parse_grouped_gemm_amx(name)) {
    const bool s8 = config->groups.a == DType::kS8;
    const int depth = s8 ? config->tile_depth : config->tile_depth / 2;
    return kernel_of(name, *config, depth, depth);
  }
  if (const auto config = jit::parse_grouped_gemm_avx512(name)) {
    return kernel_of(name, *config, 0, 32 / bits_of(config->b));
  }
  const auto config = jit::parse_grouped_decode_avx512(name);
  if (!config) return std::nullopt;
  StaticKernel kernel;
  kernel.code = code_of(name, *config);
  kernel.panels = 2;
  kernel.columns = 32;
  kernel.group_step = 32 / bits_of(config->from);  // a line
  kernel.decodes = true;
  return kernel;
}

StaticKernel nvfp4_decode_kernel(const std::string& name) {
  StaticKernel kernel;
  kernel.code = code_of(name, *jit::parse_nvfp4_decode_avx512(name));
  kernel.panels = 2;
  kernel.columns = 32;
  kernel.group_step = 8;  // a line
  kernel.decodes = kernel.blocks = true;
  return kernel;
}

int64_t ceil_div(int64_t x, int64_t y) {
  return (x + y - 1) / y;
}

int64_t steps_of_group(const StaticKernel& kernel) {
  return ceil_div(kStaticGroup, kernel.group_step);
}

/// Groups of a call: those that hold its k columns.
int64_t groups_of(const StaticKernel& kernel, const StaticCall& call) {
  return ceil_div(call.k, steps_of_group(kernel) * kernel.group_step);
}

template <typename Args>
CallModel model_with(const StaticKernel& kernel, const Args& args) {
  const std::vector<CodeInstruction> code = decode(kernel.code);
  const auto* bytes = reinterpret_cast<const std::byte*>(&args);
  return model_call(code, trace_call(code, {bytes, sizeof args}), kernel.code.sections);
}

}  // namespace

StaticKernel static_kernel(const std::string& name) {
  if (auto k = kernel_of(name, &jit::parse_int8_gemm_amx, 64)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_bf16_gemm_amx, 32)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_int8_gemm_avx512, 0)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_bf16_gemm_avx512, 0)) return *std::move(k);
  if (auto k = kernel_of(name, &jit::parse_bf16_gemm_fma_avx512, 0)) return *std::move(k);
  if (jit::parse_nvfp4_decode_avx512(name)) return nvfp4_decode_kernel(name);
  if (auto k = int4_kernel(name)) return *std::move(k);
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
  // W4A16 and W4A8 in groups of 128, and what decodes two panels for them.
  for (const char* types : {"bf16bf16", "s8s8"}) {
    for (const char* zeros : {"z8", "zu8"}) {
      names.push_back(std::string("grouped_gemm.amx.") + types +
                      "bf16.mr32.nr2.pf2.epi=none.t64.sf16." + zeros);
      names.push_back(std::string("grouped_decode.avx512.u4") +
                      (types[0] == 's' ? "s8." : "bf16.") + zeros);
    }
  }
  // Floats are subtracted from sums, not from codes.
  names.push_back("grouped_gemm.amx.bf16bf16bf16.mr32.nr2.pf2.epi=none.t64.sf16.zf32");
  names.push_back("grouped_gemm.amx.s8u8bf16.mr32.nr2.pf2.epi=none.t64.sf16.zf32");
  names.push_back("grouped_decode.avx512.u4u8");
  // Groups of fp8 read tiles of bf16 with f32 scales; what decodes them.
  names.push_back("grouped_gemm.amx.bf16bf16bf16.mr32.nr2.pf2.epi=none.t64.sf32.z8");
  names.push_back("grouped_decode.avx512.e4m3bf16");
  names.push_back("grouped_decode.avx512.e2m1bf16");
  // NVFP4 is decoded for the tiles of bf16_gemm, which scale columns.
  names.push_back("bf16_gemm.amx.bf16bf16bf16.mr32.nr2.pf2.epi=none.cs");
  names.push_back("nvfp4_decode.avx512.e2m1bf16");
  // A few rows at level amx.
  names.push_back("grouped_gemm.avx512.bf16e4m3bf16.mr3.nr2.pf8.epi=none.fma.tl8.sf32.z8");
  names.push_back("grouped_gemm.avx512.bf16u4bf16.mr4.nr2.pf8.epi=none.fma.tl4.sf16.z8");
  names.push_back("grouped_gemm.avx512.s8u4bf16.mr16.nr1.pf4.epi=none.sf16.z8");
  return names;
}

CallModel model_of(const StaticKernel& kernel, const StaticCall& call) {
  if (kernel.blocks) {
    jit::Nvfp4DecodeArgs args;
    args.panels = kernel.panels;
    args.blocks = ceil_div(call.k, 16);
    return model_with(kernel, args);
  }
  if (kernel.decodes) {
    jit::GroupedDecodeArgs args;
    args.panels = kernel.panels;
    args.groups = groups_of(kernel, call);
    args.group_lines = steps_of_group(kernel);
    return model_with(kernel, args);
  }
  jit::GemmArgs args;
  args.m = call.m;
  args.n = call.n;
  args.k = call.k;
  if (kernel.group_step > 0) {
    args.groups = groups_of(kernel, call);
    args.group_steps = steps_of_group(kernel);
  }
  args.configure = call.alone;
  args.release = call.alone;
  return model_with(kernel, args);
}

int64_t tile_dots_of(const StaticKernel& kernel, const StaticCall& call) {
  if (!kernel.tiles) return 0;
  // Whole panels, of gate and of up.
  const int64_t of_columns = kernel.panels;
  const int64_t of_depth = kernel.group_step > 0 ? groups_of(kernel, call) * steps_of_group(kernel)
                                                 : ceil_div(call.k, kernel.tile_depth);
  return ceil_div(call.m, 16) * of_columns * of_depth;
}

}  // namespace quern::bench
