#pragma once

/// Everything. See ops/README.md for the support matrix and the contracts.
#include "quern/bf16_gemm.h"
#include "quern/context.h"
#include "quern/dtype.h"
#include "quern/epilogue.h"
#include "quern/int8_gemm.h"
#include "quern/isa.h"
#include "quern/packed_weights.h"
#include "quern/problem.h"
#include "quern/quantize_rows.h"
#include "quern/span.h"
#include "quern/status.h"
#include "quern/tensor_view.h"
#include "quern/thread_pool.h"
#include "quern/tuning.h"
#include "quern/version.h"
