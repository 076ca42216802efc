#include "quern/quantize_rows.h"

#include <utility>

#include "jit/quantize_rows_avx512.h"
#include "ops/blocking.h"
#include "ops/checked.h"
#include "ops/dispatch.h"
#include "ops/gemm_operands.h"
#include "ops/mxcsr.h"
#include "ops/no_throw.h"
#include "ops/overlap.h"
#include "ops/poison.h"
#include "ops/problem_text.h"
#include "ops/run_report.h"
#include "ops/validate.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] QuantizeRows::Impl {
  Context ctx;
  QuantizeRowsDesc desc;
  Problem problem;
  Dispatch dispatch;
  jit::KernelHandle kernel;

  int64_t groups() const noexcept {
    if (desc.group == 0 || desc.k == 0) return 1;
    return ceil_div(desc.k, desc.group);
  }
  static Result<QuantizeRows> create(const Context& ctx, const QuantizeRowsDesc& desc);
  Status check(const QuantizeRowsArgs& args) const noexcept;
};

namespace {

constexpr int64_t kMaxK = int64_t{1} << 24;
// Elements below which forking costs more than it saves: a core quantizes about 8 of them a
// nanosecond.
constexpr int64_t kSerialElements = 1 << 14;

Status check(const QuantizeRowsDesc& desc) noexcept {
  if (const Status s = check_count(desc.k, "desc.k", kMaxK); !s.ok()) return s;
  if (const Status s = check_count(desc.group, "desc.group", kMaxExtent); !s.ok()) return s;
  return check_dtype(desc.a, "desc.a", {DType::kBF16, DType::kF32});
}

// The outputs are written while `a` is read, by any thread in any order.
Status check_memory(const QuantizeRowsArgs& args) noexcept {
  const Region a(args.a), q{MatrixView(args.q)}, scale{VectorView(args.scale)};
  const Region sums{MatrixView(args.sums)};
  constexpr const char* kQ = "q must not overlap {s}, which begins {0} bytes after it";
  constexpr const char* kScale = "scale must not overlap {s}, which begins {0} bytes after it";
  constexpr const char* kSums = "sums must not overlap {s}, which begins {0} bytes after it";
  const Status pairs[] = {
      check_apart(q, a, kQ, "a"),       check_apart(q, scale, kQ, "scale"),
      check_apart(q, sums, kQ, "sums"), check_apart(scale, a, kScale, "a"),
      check_apart(sums, a, kSums, "a"), check_apart(sums, scale, kSums, "scale"),
  };
  for (const Status& s : pairs) {
    if (!s.ok()) return s;
  }
  return {};
}

struct Job {
  const jit::Kernel* kernel = nullptr;
  jit::QuantizeRowsArgs all;
};

void quantize_phase(void* ctx, int /*phase*/, int tid, int nthreads) {
  const auto& job = *static_cast<const Job*>(ctx);
  const Range mine = split_range(job.all.rows, nthreads, tid);
  if (mine.size() == 0) return;
  const MxcsrScope mxcsr;
  jit::QuantizeRowsArgs args = job.all;
  args.a = static_cast<const std::byte*>(args.a) + mine.begin * args.a_stride;
  args.rows = mine.size();
  args.q += mine.begin * args.q_stride;
  args.scale += mine.begin;
  if (args.sums != nullptr) args.sums += mine.begin * (args.sum_stride / 4);
  job.kernel->call(args);
}

}  // namespace

Result<QuantizeRows> QuantizeRows::create(const Context& ctx, const QuantizeRowsDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&] { return Impl::create(ctx, desc); });
}

Result<QuantizeRows> QuantizeRows::Impl::create(const Context& ctx, const QuantizeRowsDesc& desc) {
  if (const Status s = ctx.status(); !s.ok()) return s;
  if (const Status s = v0::check(desc); !s.ok()) return s;
  Problem problem;
  problem.op = "quantize_rows";
  problem.k = desc.k;
  problem.group = desc.group;
  problem.a = desc.a;
  CreateReport report(ctx.impl(), std::move(problem));
  Dispatch dispatch = choose_family(ctx.impl(), "rows are quantized without tiles", 0);
  if (const Status s = report.dispatched(dispatch); !s.ok()) return s;
  const jit::QuantizeRowsAvx512Config config{desc.a, 1, kPoisonRegisters};
  auto kernel = ctx.impl().kernel(to_string(config), [&] { return generate(config); });
  if (!kernel.ok()) return report.failed(kernel.status());
  report.created((*kernel)->name);
  QuantizeRows op;
  op.impl_ = std::make_shared<const Impl>(
      Impl{ctx, desc, report.problem(), std::move(dispatch), std::move(*kernel)});
  return op;
}

IsaLevel QuantizeRows::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->problem.isa;
}

const QuantizeRowsDesc& QuantizeRows::desc() const noexcept {
  static const QuantizeRowsDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

int64_t QuantizeRows::groups() const noexcept {
  return impl_ == nullptr ? 1 : impl_->groups();
}

Status QuantizeRows::Impl::check(const QuantizeRowsArgs& args) const noexcept {
  const int64_t m = args.a.rows;
  if (const Status s = check_count(m, "a.rows", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_matrix(args.a, "a", desc.a, m, desc.k); !s.ok()) return s;
  if (const Status s = check_matrix(args.q, "q", DType::kS8, m, desc.k); !s.ok()) return s;
  if (const Status s = check_vector(args.scale, "scale", DType::kF32, m); !s.ok()) return s;
  if (args.sums.data != nullptr || args.sums.rows != 0) {
    if (const Status s = check_matrix(args.sums, "sums", DType::kS32, m, groups()); !s.ok()) {
      return s;
    }
  }
  return check_memory(args);
}

Status QuantizeRows::run(const QuantizeRowsArgs& args) const noexcept {
  if (impl_ == nullptr) return no_plan();
  const Impl& impl = *impl_;
  const RunReport report(impl.ctx.impl(), impl.problem, impl.kernel->name,
                         {.m = args.a.rows, .isa = impl.problem.isa});
  if (const Status s = impl.check(args); !s.ok()) return report.failed(s);
  if (args.a.rows == 0) return {};
  const int64_t k = impl.desc.k;
  Job job;
  job.kernel = impl.kernel.get();
  job.all.a = args.a.data;
  job.all.a_stride = row_step(args.a);
  job.all.rows = args.a.rows;
  job.all.k = k;
  job.all.group = impl.desc.group > 0 ? impl.desc.group : (k > 0 ? k : 1);
  job.all.q = static_cast<int8_t*>(args.q.data);
  job.all.q_stride = row_step(args.q);
  job.all.scale = static_cast<float*>(args.scale.data);
  job.all.sums = static_cast<int32_t*>(args.sums.data);
  job.all.sum_stride = row_step(args.sums);
  SerialPool serial;
  const bool small = args.a.rows <= kSerialElements && args.a.rows * k <= kSerialElements;
  ThreadPool& pool = small ? serial : impl.ctx.pool();
  pool.run(1, quantize_phase, &job);
  report.finished(pool.size());
  return {};
}

std::string QuantizeRows::explain() const {
  if (impl_ == nullptr) return no_plan().message();
  return plan_name(impl_->problem) + '\n' + impl_->dispatch.explain() + "  kernel " +
         impl_->kernel->name + '\n';
}

}  // namespace quern::inline v0
