#pragma once

#include "jit/gemm_config.h"
#include "ops/context_impl.h"
#include "ops/packed_gemm.h"
#include "quern/dtype.h"
#include "quern/epilogue.h"

namespace quern::inline v0 {

/// The families that multiply weights with a scale for each group of K at ctx's level, into
/// spec->gemm: on packed codes for few rows, on what is decoded of them to scratch for more.
/// `codes`: kU4, kE4M3, kE5M2 or kE2M1. The rest of the spec is complete.
void use_grouped_families(const ContextImpl& ctx, DType codes, const jit::GroupConfig& config,
                          Invariance invariance, PackedGemmSpec* spec);

}  // namespace quern::inline v0
