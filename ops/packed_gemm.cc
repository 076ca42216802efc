#include "ops/packed_gemm.h"

#include <algorithm>
#include <utility>

#include "jit/quantize_rows_avx512.h"
#include "ops/checked.h"
#include "ops/mxcsr.h"
#include "ops/poison.h"
#include "ops/problem_text.h"
#include "ops/run_report.h"

namespace quern::inline v0 {
namespace {

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
      run.row_sum = job.rows.sum(copy);
    }
  }
  run_gemm_part(run, tid, job.partials + tid * job.partial_bytes);
}

Result<jit::KernelHandle> quantize_kernel(ContextImpl& ctx, DType a) {
  const jit::QuantizeRowsAvx512Config config{a, PreparedRows::kPad, kPoisonRegisters};
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
    auto kernel = quantize_kernel(ctx.impl(), plan.spec().problem.a);
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

PreparedRows PackedGemm::prepared_rows(int64_t m, int64_t row_step,
                                       const ThreadPool& pool) const noexcept {
  const GemmFamily& family = plan_.family(m);
  // More rows than one block's pass in smaller blocks, whose 9 rows and 3 panels fit a set (a pad
  // made no difference at M 64 and 256). Tiles read each line once.
  const bool spread = family.rows == RowPreparation::kNone && !family.facts.tiles() &&
                      m <= plan_.blocking(m).mr && meet_in_l1(row_step, m);
  return PreparedRows(spread ? RowPreparation::kSpread : family.rows, m, spec().problem.k,
                      pool.size());
}

// Up to max_m rows need the most at max_m, or at the last number of rows that every thread prepares
// for itself, or at one that a single register block takes. A family that took over anywhere else
// would be a third place to look at: the one before may have prepared rows that this one reads as
// they are.
static_assert(kFewRowsOnAvx512 == PreparedRows::kRowsForEachThread,
              "scratch_bytes() must also look at the rows up to which avx512 stands in for amx");

size_t PackedGemm::scratch_bytes(int64_t max_m) const noexcept {
  const ThreadPool& pool = ctx_.pool();
  const int64_t m = std::clamp<int64_t>(max_m, 0, max_rows());
  constexpr int64_t kWorstStep = 0;  // a multiple of every distance
  const auto bytes_for = [&](int64_t rows) {
    return prepared_rows(rows, kWorstStep, pool).bytes();
  };
  // Few rows are prepared by every thread, more rows once, so the need does not grow with m alone.
  int64_t rows = std::max(bytes_for(m), bytes_for(std::min(m, PreparedRows::kRowsForEachThread)));
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
  return check_operands(args.operands, shape(m));
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
  job.rows = prepared_rows(m, job.run.a_stride, pool);
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
  return text + plan_.explain();
}

}  // namespace quern::inline v0
