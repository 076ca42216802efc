// The loops around the micro-kernel:
//   for mc rows of A                     partial sums of one column block fit L2
//     for 16 nr columns of W             4 panels, kc deep, stay in L2 for all of these rows
//       for kc of K                      mr rows of A, kc deep, stay in L1
//         for mr rows                    one kernel call
#include <algorithm>

#include "ops/checked.h"
#include "ops/gemm_plan.h"

namespace quern::inline v0 {
namespace {

constexpr int64_t kPanelColumns = 16;
constexpr int64_t kVectorBytes = 64;

/// One thread's walk over its rows and panels.
class Walk {
 public:
  Walk(const GemmRun& run, std::byte* partial) noexcept
      : run_(run),
        facts_(run.plan->spec().facts),
        blocking_(run.plan->blocking(run.m)),
        kernels_(run.plan->kernels(run.m)),
        parts_(run.plan->spec().gate_up() ? 2 : 1),
        partial_(partial) {}

  void rows_and_panels(Range rows, Range panels) noexcept {
    for (int64_t row = rows.begin; row < rows.end; row += blocking_.mc) {
      const Range chunk{row, std::min(row + blocking_.mc, rows.end)};
      for (int64_t panel = panels.begin; panel < panels.end; panel += blocking_.nr) {
        column_block(chunk, {panel, std::min(panel + blocking_.nr, panels.end)});
      }
    }
  }

 private:
  void column_block(Range rows, Range panels) noexcept {
    const int64_t k = facts_.k;
    const int64_t kc = blocking_.kc == 0 ? std::max<int64_t>(k, 1) : blocking_.kc;
    // Rows in blocks that differ by at most one, so that 7 rows are 4 + 3 and not 6 + 1.
    const int64_t blocks = ceil_div(rows.size(), blocking_.mr);
    int64_t k0 = 0;
    do {
      const Range depth{k0, std::min(k0 + kc, k)};
      for (int64_t i = 0; i < blocks; ++i) {
        const Range r = split_range(rows.size(), blocks, i);
        kernel_call({rows.begin + r.begin, rows.begin + r.end}, r.begin, panels, depth);
      }
      k0 += kc;
    } while (k0 < k);
  }

  void kernel_call(Range rows, int64_t row_in_chunk, Range panels, Range depth) const noexcept {
    const GemmSpec& spec = run_.plan->spec();
    const int64_t column = panels.begin / parts_ * kPanelColumns;
    const int64_t partial_row = blocking_.nr * kVectorBytes * (facts_.wide ? 2 : 1);
    jit::GemmArgs args;
    args.a = run_.a + rows.begin * run_.a_stride + depth.begin * facts_.a_bytes;
    args.a_stride = run_.a_stride;
    args.b = run_.weights->data() + panels.begin * run_.weights->panel_bytes() +
             depth.begin * kPanelColumns * facts_.weight_bytes;
    args.panel_stride = run_.weights->panel_bytes();
    args.k = depth.size();
    args.acc = partial_ + row_in_chunk * partial_row;
    args.first = depth.begin == 0;
    args.last = depth.end == facts_.k;
    args.c = run_.c + rows.begin * run_.c_stride + column * run_.c_bytes;
    args.c_stride = run_.c_stride;
    args.n = std::min(panels.size() / parts_ * kPanelColumns, spec.problem.n - column);
    if (run_.row_scale != nullptr) {
      args.row_scale = run_.row_scale + rows.begin;
      args.row_sum = run_.row_sum + rows.begin;
    }
    if (run_.weights->scales() != nullptr) {
      args.col_scale = run_.weights->scales() + panels.begin * kPanelColumns;
    }
    if (run_.bias != nullptr) {
      args.bias = run_.bias + column;
      args.bias_up = args.bias + spec.problem.n;
    }
    if (run_.residual != nullptr) {
      args.residual = run_.residual + rows.begin * run_.residual_stride + column * run_.c_bytes;
      args.residual_stride = run_.residual_stride;
    }
    kernels_.at(static_cast<int>(rows.size()), static_cast<int>(panels.size())).call(args);
  }

  const GemmRun& run_;
  const GemmFacts& facts_;
  const GemmBlocking& blocking_;
  const KernelSet& kernels_;
  const int64_t parts_;
  std::byte* const partial_;
};

}  // namespace

int64_t column_units(const GemmPlan& plan) noexcept {
  return ceil_div(plan.spec().problem.n, kPanelColumns);
}

void run_gemm_part(const GemmRun& run, int tid, std::byte* partial) noexcept {
  if (tid >= run.grid.m_parts * run.grid.n_parts) return;
  const int64_t parts = run.plan->spec().gate_up() ? 2 : 1;
  const Range rows = split_range(run.m, run.grid.m_parts, tid / run.grid.n_parts);
  const Range units =
      split_range(column_units(*run.plan), run.grid.n_parts, tid % run.grid.n_parts);
  Walk(run, partial).rows_and_panels(rows, {units.begin * parts, units.end * parts});
}

}  // namespace quern::inline v0
