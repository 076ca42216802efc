#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "jit/gemm_args.h"
#include "jit/kernel.h"
#include "ops/blocking.h"
#include "ops/context_impl.h"
#include "ops/prepared_rows.h"
#include "quern/problem.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// Kernels of one register block: [steps of rows - 1][nr - 1] for every smaller block that tails
/// need.
struct KernelSet {
  size_t family = 0;
  int row_step = 1;
  int mr = 0;
  int nr = 0;
  int prefetch = 0;  ///< lines a turn, of the widest block
  std::vector<jit::KernelHandle> kernels;

  const jit::Kernel& at(int rows, int vectors) const {
    return *kernels[static_cast<size_t>((rows - 1) / row_step * nr + vectors - 1)];
  }
};

/// One kernel family that a plan uses.
struct GemmFamily {
  IsaLevel level = IsaLevel::kNone;
  GemmFacts facts;
  RowPreparation rows = RowPreparation::kNone;
  /// Name and generator of the family's kernel for a register block.
  std::function<std::string(int mr, int nr, int prefetch)> kernel_name;
  std::function<Result<jit::GeneratedCode>(int mr, int nr, int prefetch)> generate;
  /// grouped_decode, where facts say that weights are decoded to scratch: what makes it, and, in a
  /// plan, the kernel.
  std::string decode_name;
  std::function<Result<jit::GeneratedCode>()> generate_decode;
  jit::KernelHandle decode;
};

/// What a GEMM op tells the plan about itself.
struct GemmSpec {
  Problem problem;  ///< everything but m, which is filled in for each look-up
  /// The family that dispatch chose, then perhaps the one that takes its place up to few_rows rows:
  /// only where both give the same bits or the Desc says that they need not.
  std::vector<GemmFamily> families;
  int64_t few_rows = 0;
  /// The compiled-in answer for m rows, where the tuning source has none.
  GemmBlocking (*blocking)(const GemmFacts& facts, int64_t m) noexcept = default_blocking;

  bool gate_up() const noexcept { return problem.epilogue.activation == Activation::kSiluMul; }
};

/// Blocking for every M bucket and every kernel it can need, made at create; immutable afterwards.
/// The part that all GEMM-shaped ops share.
class GemmPlan {
 public:
  static Result<GemmPlan> create(ContextImpl& ctx, GemmSpec spec);

  const GemmSpec& spec() const noexcept { return spec_; }
  const GemmFamily& family(int64_t m) const noexcept { return spec_.families[family_of(m)]; }
  const GemmBlocking& blocking(int64_t m) const noexcept;
  const KernelSet& kernels(int64_t m) const noexcept;
  /// The name of the largest kernel that M rows use: what verbose lines call the run.
  const std::string& kernel_name(int64_t m) const noexcept {
    return kernels(m).kernels.back()->name;
  }
  /// Scratch of one thread for tiles and partial sums, for any M up to max_m.
  int64_t partial_bytes(int64_t max_m) const noexcept;
  /// Of it, what the weights of one chunk take once they are decoded, for M rows.
  int64_t decoded_bytes(int64_t m) const noexcept;
  /// Kernel names and blocking by M.
  std::string explain() const;

 private:
  struct Bucket {
    GemmBlocking blocking;
    size_t set = 0;
    const char* source = "";
    const char* refused = nullptr;  ///< why the tuning entry was not used
  };

  size_t family_of(int64_t m) const noexcept {
    return spec_.families.size() > 1 && m <= spec_.few_rows ? 1 : 0;
  }
  Status fill_bucket(ContextImpl& ctx, int index);
  Result<size_t> kernel_set(ContextImpl& ctx, size_t family, const GemmBlocking& blocking,
                            int prefetch);

  GemmSpec spec_;
  std::array<Bucket, kMBuckets> buckets_;
  std::vector<KernelSet> sets_;
};

/// Weights with a scale for each group of K, and what their zero points are multiplied with.
struct GemmGroups {
  int64_t count = 0;                 ///< groups of a panel
  const std::byte* scale = nullptr;  ///< [panels][count][16]
  int64_t scale_bytes = 0;           ///< of 16
  const std::byte* zero = nullptr;
  int64_t zero_bytes = 0;
  const std::byte* sum = nullptr;  ///< [count][rows], jit::GemmArgs::group_sum
  int64_t sum_stride = 0;          ///< bytes
};

/// One product: everything a thread needs to compute its part.
struct GemmRun {
  const GemmPlan* plan = nullptr;
  int64_t k = 0;                      ///< of these weights: GemmFacts::k, or less with act_order
  const std::byte* panels = nullptr;  ///< packed weights
  int64_t panel_bytes = 0;
  const float* col_scale = nullptr;  ///< one for each packed column; null where there are none
  const std::byte* block_scale = nullptr;  ///< [panels][blocks][16], or null
  int64_t block_scale_stride = 0;          ///< bytes of a panel's
  int64_t m = 0;
  ThreadGrid grid;
  const std::byte* a = nullptr;
  int64_t a_stride = 0;  ///< bytes
  std::byte* c = nullptr;
  int64_t c_stride = 0;  ///< bytes
  int64_t c_bytes = 0;   ///< of one element
  const float* row_scale = nullptr;
  const int32_t* row_sum = nullptr;
  GemmGroups groups;
  const float* bias = nullptr;
  const std::byte* residual = nullptr;
  int64_t residual_stride = 0;  ///< bytes
};

/// A part of a product, and what its thread does afterwards.
struct GemmPiece {
  Range rows;
  Range panels;
  const std::byte* next = nullptr;  ///< weights that follow, to be fetched ahead; null: none known
  bool last = true;                 ///< nothing follows: tiles are given up
};

/// What a thread keeps from one piece of a call to the next; the pieces have the same plan, and the
/// same m.
struct GemmPieces {
  int64_t configured_rows = 0;  ///< of the tiles; 0: not configured
  bool backwards = false;
};

/// The smallest pieces columns are cut into: panels, or pairs of them with gate_up.
int64_t column_units(const GemmPlan& plan) noexcept;

/// Computes one piece. `partial` is the thread's partial_bytes(m), 64-byte aligned.
void run_gemm_piece(const GemmRun& run, const GemmPiece& piece, GemmPieces* pieces,
                    std::byte* partial) noexcept;

/// Computes thread `tid`'s part. `partial` is that thread's partial_bytes(m), 64-byte aligned.
void run_gemm_part(const GemmRun& run, int tid, std::byte* partial) noexcept;

}  // namespace quern::inline v0
