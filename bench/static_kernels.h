#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/static_model.h"
#include "jit/kernel.h"

namespace quern::bench {

/// A GEMM micro-kernel, or the decoding of int4 panels for one, and what its name says about it.
struct StaticKernel {
  jit::GeneratedCode code;
  int mr = 0;
  int columns = 0;  ///< of C: 16 for each panel, or each pair of gate and up panels
  int panels = 0;
  bool tiles = false;
  int tile_depth = 0;  ///< elements of K that one tile dot product takes; 0 without tiles
  /// Elements of K in a step of the K loop, where it goes by groups of kStaticGroup; else 0.
  int group_step = 0;
  bool decodes = false;
  bool blocks = false;  ///< NVFP4, with scales of 16 columns of K
};

/// Columns of K that share a scale, in whole steps.
constexpr int64_t kStaticGroup = 128;

/// Generates the kernel of that name, of any GEMM family or of the decoding ones (of two panels).
/// Throws UsageError where it is no such name or breaks a rule.
StaticKernel static_kernel(const std::string& name);

/// int8, bf16, bf16 on u8 codes, int4, fp8 and fp4 on AMX, in the shapes that plans choose; what
/// decodes the weights for int4, and what multiplies a few rows instead.
std::vector<std::string> default_static_kernels();

/// One call: rows and columns of the block of C, depth of K. It is both the first and the last over
/// its K and has no prefetch hints.
struct StaticCall {
  int64_t m = 0, n = 0, k = 0;
  bool alone = false;  ///< loads the tile configuration before, and releases it after
};

/// Throws std::runtime_error where the code cannot be read or followed.
CallModel model_of(const StaticKernel& kernel, const StaticCall& call);

/// Tile dot products that the problem of the call consists of.
int64_t tile_dots_of(const StaticKernel& kernel, const StaticCall& call);

}  // namespace quern::bench
