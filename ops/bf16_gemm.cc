#include "quern/bf16_gemm.h"

#include <utility>

#include "jit/bf16_gemm_avx512.h"
#include "ops/dispatch.h"
#include "ops/gemm_operands.h"
#include "ops/gemm_plan.h"
#include "ops/mxcsr.h"
#include "ops/poison.h"
#include "ops/run_report.h"
#include "ops/validate.h"
#include "ops/weight_packing.h"

namespace quern::inline v0 {

struct Bf16Gemm::Impl {
  Context ctx;
  Bf16GemmDesc desc;
  Dispatch dispatch;
  GemmPlan plan;

  bool gate_up() const noexcept { return desc.epilogue.activation == Activation::kSiluMul; }
  GemmShape shape(int64_t m) const noexcept {
    return {m,
            desc.n,
            desc.k,
            desc.c,
            gate_up() ? WeightLayout::kBf16Vnni2N16GateUp : WeightLayout::kBf16Vnni2N16,
            desc.epilogue};
  }
  Result<PackedWeights> pack(Span<const MatrixView> parts) const;
};

namespace {

Status check(const Bf16GemmDesc& desc) noexcept {
  if (const Status s = check_count(desc.n, "desc.n", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_count(desc.k, "desc.k", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_enums(desc.epilogue, desc.invariance); !s.ok()) return s;
  return check_dtype(desc.c, "desc.c", DType::kBF16, DType::kF32);
}

GemmSpec make_spec(const Bf16GemmDesc& desc) {
  GemmSpec spec;
  spec.problem.op = "bf16_gemm";
  spec.problem.n = desc.n;
  spec.problem.k = desc.k;
  spec.problem.c = desc.c;
  spec.problem.epilogue = desc.epilogue;
  spec.facts = {.k = desc.k, .a_bytes = 2, .weight_bytes = 2, .max_mr = 6, .wide = false};
  spec.gate_up = desc.epilogue.activation == Activation::kSiluMul;
  const auto config = [desc](int mr, int nr, int prefetch) {
    jit::Bf16GemmAvx512Config c;
    c.mr = mr;
    c.nr = nr;
    c.prefetch = prefetch;
    c.poison = kPoisonRegisters;
    c.epilogue = {desc.c, desc.epilogue.bias, desc.epilogue.activation, desc.epilogue.residual};
    return c;
  };
  spec.kernel_name = [config](int mr, int nr, int pf) { return to_string(config(mr, nr, pf)); };
  spec.generate = [config](int mr, int nr, int pf) { return generate(config(mr, nr, pf)); };
  return spec;
}

struct Job {
  GemmRun run;
  std::byte* partials = nullptr;
  int64_t partial_bytes = 0;
};

void gemm_phase(void* ctx, int /*phase*/, int tid, int /*nthreads*/) {
  const auto& job = *static_cast<const Job*>(ctx);
  const MxcsrScope mxcsr;
  run_gemm_part(job.run, tid, job.partials + tid * job.partial_bytes);
}

}  // namespace

Result<Bf16Gemm> Bf16Gemm::create(const Context& ctx, const Bf16GemmDesc& desc) {
  if (const Status s = check(desc); !s.ok()) return s;
  GemmSpec spec = make_spec(desc);
  CreateReport report(ctx.impl(), spec.problem);
  Dispatch dispatch = choose_family(ctx.impl(), spec.problem, {.bf16 = true});
  if (!dispatch.status.ok()) return report.failed(dispatch.status);
  auto plan = GemmPlan::create(ctx.impl(), std::move(spec));
  if (!plan.ok()) return report.failed(plan.status());
  report.created(plan->kernel_name(1));
  Bf16Gemm gemm;
  gemm.impl_ = std::make_shared<const Impl>(Impl{ctx, desc, std::move(dispatch), std::move(*plan)});
  return gemm;
}

const Bf16GemmDesc& Bf16Gemm::desc() const noexcept {
  static const Bf16GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Result<PackedWeights> Bf16Gemm::Impl::pack(Span<const MatrixView> parts) const {
  constexpr const char* kNames[] = {"gate", "up"};
  for (size_t i = 0; i < parts.size(); ++i) {
    const char* name = gate_up() ? kNames[i] : "w";
    if (const Status s = check_matrix(parts[i], name, DType::kBF16, desc.n, desc.k); !s.ok()) {
      return s;
    }
  }
  return pack_bf16(ctx.pool(), parts);
}

Result<PackedWeights> Bf16Gemm::pack(MatrixView w) const {
  if (impl_ == nullptr) return no_plan();
  if (impl_->gate_up()) {
    return Status(StatusCode::kInvalidArgument, "a silu_mul plan packs with pack_gate_up");
  }
  return impl_->pack({&w, 1});
}

Result<PackedWeights> Bf16Gemm::pack_gate_up(MatrixView gate, MatrixView up) const {
  if (impl_ == nullptr) return no_plan();
  if (!impl_->gate_up()) {
    return Status(StatusCode::kInvalidArgument, "pack_gate_up needs a plan with silu_mul");
  }
  const MatrixView parts[] = {gate, up};
  return impl_->pack({parts, 2});
}

size_t Bf16Gemm::scratch_bytes(int64_t max_m) const noexcept {
  if (impl_ == nullptr) return 0;
  const int64_t partial = impl_->plan.partial_bytes(max_m < 0 ? 0 : max_m);
  if (partial == 0) return 0;
  return static_cast<size_t>(partial * impl_->ctx.pool().size() + kScratchAlign);
}

Status Bf16Gemm::run(const Bf16GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  const Impl& impl = *impl_;
  const RunReport report(impl.ctx.impl(), impl.plan.spec().problem,
                         impl.plan.kernel_name(args.a.rows), args.a.rows);
  const GemmShape shape = impl.shape(args.a.rows);
  const GemmOperands operands{args.weights, args.c, args.bias, args.residual};
  if (const Status s = check_count(shape.m, "a.rows", kMaxExtent); !s.ok()) return report.failed(s);
  if (const Status s = check_matrix(args.a, "a", DType::kBF16, shape.m, shape.k); !s.ok()) {
    return report.failed(s);
  }
  if (const Status s = check_operands(operands, shape); !s.ok()) return report.failed(s);
  if (const Status s = check_scratch(scratch, scratch_bytes(shape.m)); !s.ok()) {
    return report.failed(s);
  }
  if (shape.m == 0 || shape.n == 0) return {};

  SerialPool serial;
  ThreadPool& pool =
      runs_serially(impl.plan.spec().facts, shape.m, shape.n) ? serial : impl.ctx.pool();
  Job job;
  job.run = make_run(impl.plan, operands, shape);
  job.run.a = static_cast<const std::byte*>(args.a.data);
  job.run.a_stride = row_step(args.a);
  job.run.grid = choose_grid(shape.m, column_units(impl.plan), pool.size());
  job.partial_bytes = impl.plan.partial_bytes(shape.m);
  if (job.partial_bytes != 0) job.partials = align_scratch(scratch);
  pool.run(1, gemm_phase, &job);
  report.finished();
  return {};
}

std::string Bf16Gemm::explain() const {
  if (impl_ == nullptr) return no_plan().message();
  return to_string(impl_->plan.spec().problem) + '\n' + impl_->dispatch.explain() +
         impl_->plan.explain();
}

}  // namespace quern::inline v0
