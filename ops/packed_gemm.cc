#include "ops/packed_gemm.h"

#include <algorithm>
#include <utility>

#include "jit/quantize_rows_avx512.h"
#include "ops/checked.h"
#include "ops/mxcsr.h"
#include "ops/poison.h"
#include "ops/problem_text.h"
#include "ops/run_report.h"
#include "ops/status_text.h"

namespace quern::inline v0 {
namespace {

int64_t values_bytes(const WeightGroups& groups, bool zeros) noexcept {
  constexpr int64_t kPanel = kPanelColumns;
  if (!zeros) return kPanel * static_cast<int64_t>(size_of(groups.scale));
  return groups.zeros == Int4Zeros::kF32 ? kPanel * 4 : kPanel;
}

void use_groups(const PackedWeights& weights, const WeightGroups& groups, GemmRun* run) noexcept {
  run->groups.count = weights.groups();
  run->groups.scale = static_cast<const std::byte*>(weights.group_scales());
  run->groups.scale_bytes = values_bytes(groups, false);
  run->groups.zero = static_cast<const std::byte*>(weights.group_zeros());
  run->groups.zero_bytes = values_bytes(groups, true);
}

/// One call. With prepared rows phase 0 fills them and phase 1 multiplies; they are the same phase
/// where every thread prepares the few rows for itself and no barrier is needed.
struct Job {
  GemmRun run;
  PreparedRows rows;
  const jit::Kernel* quantize = nullptr;
  MatrixView a;
  const float* a_scale = nullptr;  ///< the caller's, with s8 activations
  std::byte* partials = nullptr;
  int64_t partial_bytes = 0;

  bool prepares() const noexcept { return rows.bytes() != 0; }
  int phases() const noexcept { return prepares() && !rows.each_thread() ? 2 : 1; }
};

void job_phase(void* ctx, int phase, int tid, int nthreads) {
  const auto& job = *static_cast<const Job*>(ctx);
  const MxcsrScope mxcsr;
  GemmRun run = job.run;
  if (job.prepares()) {
    const bool each = job.rows.each_thread();
    const int copy = each ? tid : 0;
    if (phase == 0) {
      const Range mine = each ? Range{0, run.m} : split_range(run.m, nthreads, tid);
      job.rows.prepare(job.quantize, job.a, mine, copy);
      if (job.phases() == 2) return;
    }
    run.a = job.rows.rows(copy);
    run.a_stride = job.rows.stride();
    if (job.quantize != nullptr) {
      run.row_scale = job.a_scale != nullptr ? job.a_scale : job.rows.scale(copy);
    }
    if (run.groups.count == 0) {
      if (job.quantize != nullptr) run.row_sum = job.rows.sum(copy);
    } else {
      run.groups.sum = job.rows.group_sum(copy);
      run.groups.sum_stride = job.rows.group_sum_stride();
    }
  }
  run_gemm_part(run, tid, job.partials + tid * job.partial_bytes);
}

Result<jit::KernelHandle> quantize_kernel(ContextImpl& ctx, DType a, const RowGroups& groups) {
  const bool quads = groups.layout.groups > 0 && groups.in_place();
  const jit::QuantizeRowsAvx512Config config{a, PreparedRows::kPad, kPoisonRegisters, quads};
  return ctx.kernel(to_string(config), [&] { return generate(config); });
}

}  // namespace

Result<PackedGemm> PackedGemm::create(const Context& ctx, PackedGemmSpec spec) {
  CreateReport report(ctx.impl(), spec.gemm.problem);
  auto planned = plan_gemm(ctx.impl(), std::move(spec.gemm), &report);
  if (!planned.ok()) return planned.status();
  GemmPlan& plan = planned->plan;
  jit::KernelHandle quantize;
  if (plan.spec().families[0].rows == RowPreparation::kQuantize) {
    auto kernel = quantize_kernel(ctx.impl(), plan.spec().problem.a, spec.row_groups);
    if (!kernel.ok()) return report.failed(kernel.status());
    quantize = std::move(*kernel);
  }
  report.created(plan.kernel_name(kMaxExtent));
  return PackedGemm(ctx, std::move(spec), std::move(planned->dispatch), std::move(plan),
                    std::move(quantize));
}

GemmShape PackedGemm::shape(int64_t m) const noexcept {
  const Problem& p = spec().problem;
  return {m, p.n, p.k, p.c, layout_, p.epilogue};
}

Status PackedGemm::check_parts(size_t parts) const noexcept {
  if (spec().gate_up() && parts == 1) {
    return Status(StatusCode::kInvalidArgument, "a silu_mul plan packs with pack_gate_up");
  }
  if (!spec().gate_up() && parts == 2) {
    return Status(StatusCode::kInvalidArgument, "pack_gate_up needs a plan with silu_mul");
  }
  return {};
}

// Rows whose prepared form is sure to be countable in bytes.
int64_t PackedGemm::max_rows() const noexcept {
  const auto& families = spec().families;
  if (std::all_of(families.begin(), families.end(),
                  [](const GemmFamily& f) { return f.rows == RowPreparation::kNone; })) {
    return kMaxExtent;
  }
  return kMaxExtent / std::max<int64_t>(spec().problem.k, 1) / 8;
}

PreparedRows PackedGemm::prepared_rows(int64_t m, int64_t row_step, const RowGroups& groups,
                                       const ThreadPool& pool) const noexcept {
  const GemmFamily& family = plan_.family(m);
  // More rows than one block's pass in smaller blocks, whose 9 rows and 3 panels fit a set (a pad
  // made no difference at M 64 and 256). Tiles read each line once.
  const bool spread = family.rows == RowPreparation::kNone && !family.facts.tiles() &&
                      m <= plan_.blocking(m).mr && meet_in_l1(row_step, m);
  return PreparedRows(spread ? RowPreparation::kSpread : family.rows, m, spec().problem.k,
                      pool.size(), groups);
}

// Up to max_m rows need the most at max_m, or at the last number of rows that every thread prepares
// for itself, or that the second family takes (it may prepare rows that the first one reads as they
// are), or at one that a single register block takes.

size_t PackedGemm::scratch_bytes(int64_t max_m) const noexcept {
  const ThreadPool& pool = ctx_.pool();
  const int64_t m = std::clamp<int64_t>(max_m, 0, max_rows());
  constexpr int64_t kWorstStep = 0;  // a multiple of every distance
  const auto bytes_for = [&](int64_t rows) {
    return prepared_rows(rows, kWorstStep, row_groups_, pool).bytes();
  };
  // Few rows are prepared by every thread, more rows once, so the need does not grow with m alone.
  int64_t rows = std::max({bytes_for(m), bytes_for(std::min(m, PreparedRows::kRowsForEachThread)),
                           bytes_for(std::min(m, spec().few_rows))});
  for (int64_t block = std::min<int64_t>(m, kMostBlockRows); meet_in_l1(kWorstStep, block);
       --block) {
    rows = std::max(rows, bytes_for(block));
  }
  const int64_t partials = plan_.partial_bytes(m) * pool.size();
  return rows + partials == 0 ? 0 : static_cast<size_t>(rows + partials + kScratchAlign);
}

Status PackedGemm::check_args(const PackedGemmArgs& args) const noexcept {
  const int64_t m = args.a.rows;
  const Problem& problem = spec().problem;
  if (const Status s = check_count(m, "a.rows", kMaxExtent); !s.ok()) return s;
  if (m > max_rows()) {
    return Status(StatusCode::kTooLarge, "a of {0} rows and {1} columns needs too much scratch", m,
                  problem.k);
  }
  if (const Status s = check_matrix(args.a, "a", problem.a, m, problem.k); !s.ok()) return s;
  if (a_scaled_) {
    if (const Status s = check_vector(args.a_scale, "a_scale", DType::kF32, m); !s.ok()) return s;
  } else if (args.a_scale.data != nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  "a_scale given, but only s8 activations come with scales");
  }
  if (const Status s = check_operands(args.operands, shape(m)); !s.ok()) return s;
  return weight_groups_ ? check_groups(*args.operands.weights) : Status();
}

Status PackedGemm::check_groups(const PackedWeights& w) const noexcept {
  const WeightGroups& groups = *weight_groups_;
  const auto differs = [](const char* text, int64_t is, int64_t should) {
    return Status(StatusCode::kInvalidArgument, text, is, should);
  };
  if (w.group() != groups.group) {
    return differs("weights.group ({0}) must be the plan's ({1})", w.group(), groups.group);
  }
  // With act_order as many as g_idx made, for which there is scratch.
  const int64_t most = row_groups_.layout.groups;
  if (groups.act_order ? w.groups() > most : w.groups() != most) {
    return differs(groups.act_order ? "weights.groups ({0}) must be at most {1}"
                                    : "weights.groups ({0}) must be the plan's ({1})",
                   w.groups(), most);
  }
  if (w.act_order() != groups.act_order) {
    return differs("weights.act_order ({0}) must be desc.act_order ({1})", w.act_order(),
                   groups.act_order);
  }
  if (w.scale_dtype() != groups.scale) {
    return differs("weights.scale_dtype ({0:dtype}) must be desc.scale ({1:dtype})",
                   status_value(w.scale_dtype()), status_value(groups.scale));
  }
  if (w.zeros() != groups.zeros) {
    return differs("weights.zeros ({0}) must be desc.zeros ({1})", static_cast<int64_t>(w.zeros()),
                   static_cast<int64_t>(groups.zeros));
  }
  return {};
}

int PackedGemm::run_checked(const PackedGemmArgs& args, Span<std::byte> scratch) const noexcept {
  const int64_t m = args.a.rows;
  const GemmFacts& facts = plan_.family(m).facts;
  SerialPool serial;
  ThreadPool& pool = runs_serially(facts, m, spec().problem.n) ? serial : ctx_.pool();
  Job job;
  job.run = make_run(plan_, args.operands, shape(m));
  job.run.a = static_cast<const std::byte*>(args.a.data);
  job.run.a_stride = row_step(args.a);
  job.run.grid = choose_grid(ceil_div(m, facts.row_step), column_units(plan_), pool.size());
  job.a = args.a;
  job.a_scale = static_cast<const float*>(args.a_scale.data);
  job.quantize = quantize_.get();
  RowGroups row_groups = row_groups_;
  if (weight_groups_) {
    const PackedWeights& weights = *args.operands.weights;
    row_groups.layout = GroupLayout(weights.k(), weights.group(), weights.groups());
    row_groups.order = weights.order();
    job.run.k = row_groups.layout.depth();
    use_groups(weights, *weight_groups_, &job.run);
  }
  job.rows = prepared_rows(m, job.run.a_stride, row_groups, pool);
  job.partial_bytes = plan_.partial_bytes(m);
  if (job.rows.bytes() + job.partial_bytes != 0) {
    std::byte* memory = align_scratch(scratch);
    job.rows.use(memory);
    job.partials = memory + job.rows.bytes();
  }
  pool.run(job.phases(), job_phase, &job);
  return pool.size();
}

Status PackedGemm::run(const PackedGemmArgs& args, Span<std::byte> scratch) const noexcept {
  const int64_t m = args.a.rows;
  const RunReport report(ctx_.impl(), spec().problem, plan_.kernel_name(m),
                         {.m = m, .isa = plan_.family(m).level});
  if (const Status s = check_args(args); !s.ok()) return report.failed(s);
  const size_t needed = scratch_bytes(m);
  if (const Status s = check_scratch(scratch, needed); !s.ok()) return report.failed(s);
  const Status apart = check_memory(args.operands, args.a, args.a_scale, {scratch.data(), needed});
  if (!apart.ok()) return report.failed(apart);
  if (m == 0 || spec().problem.n == 0) return {};
  report.finished(run_checked(args, scratch));
  return {};
}

std::string PackedGemm::explain() const {
  std::string text = plan_name(spec().problem) + '\n' + dispatch_.explain();
  if (quantize_ != nullptr) text += "  kernel " + quantize_->name + '\n';
  for (const GemmFamily& family : spec().families) {
    if (family.decode == nullptr) continue;
    const int64_t few = spec().few_rows;
    text += "  weights decoded by " + family.decode->name + ' ' +
            (few == 0 ? "for any m" : "for m " + std::to_string(few + 1) + "..") + '\n';
  }
  return text + plan_.explain();
}

}  // namespace quern::inline v0
