#include "quern/int8_gemm.h"

#include <algorithm>
#include <utility>

#include "jit/bf16_gemm_avx512.h"
#include "jit/int8_gemm_avx512.h"
#include "jit/quantize_rows_avx512.h"
#include "ops/dispatch.h"
#include "ops/gemm_operands.h"
#include "ops/gemm_plan.h"
#include "ops/mxcsr.h"
#include "ops/poison.h"
#include "ops/row_quantizer.h"
#include "ops/run_report.h"
#include "ops/validate.h"
#include "ops/weight_packing.h"

namespace quern::inline v0 {

struct Int8Gemm::Impl {
  Context ctx;
  Int8GemmDesc desc;
  Dispatch dispatch;
  GemmPlan plan;
  jit::KernelHandle quantize;  ///< null with bf16 activations

  bool gate_up() const noexcept { return desc.epilogue.activation == Activation::kSiluMul; }
  GemmShape shape(int64_t m) const noexcept {
    return {m,
            desc.n,
            desc.k,
            desc.c,
            gate_up() ? WeightLayout::kU8Vnni4N16GateUp : WeightLayout::kU8Vnni4N16,
            desc.epilogue};
  }
  Status check_weights(const Int8Weights& w, const char* codes, const char* scale) const noexcept;
  Status check_args(const Int8GemmArgs& args) const noexcept;
  QuantizedRows quantized_rows(int64_t m) const noexcept;
  void run_checked(const Int8GemmArgs& args, Span<std::byte> scratch) const noexcept;
};

namespace {

// |sum of k products of u8 and s8| < 2^31 after the correction for every k below this.
constexpr int64_t kFirstWideK = 131072;
// The sum of k signed bytes must fit 32 bits: -128 * 2^24 = -2^31.
constexpr int64_t kMaxK = int64_t{1} << 24;

// Rows whose quantized form is sure to be countable in bytes.
int64_t max_rows(const Int8GemmDesc& desc) noexcept {
  return kMaxExtent / std::max<int64_t>(desc.k, 1) / 2;
}

Status check(const Int8GemmDesc& desc) noexcept {
  if (const Status s = check_count(desc.n, "desc.n", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_count(desc.k, "desc.k", kMaxK); !s.ok()) return s;
  if (const Status s = check_dtype(desc.c, "desc.c", DType::kBF16, DType::kF32); !s.ok()) return s;
  if (const Status s = check_enums(desc.epilogue, desc.invariance); !s.ok()) return s;
  switch (desc.activations) {
    case Int8Activations::kDynamicS8:
      return check_dtype(desc.a, "desc.a", DType::kBF16, DType::kF32);
    case Int8Activations::kS8:
      return check_dtype(desc.a, "desc.a", DType::kS8, DType::kS8);
    case Int8Activations::kBF16:
      return check_dtype(desc.a, "desc.a", DType::kBF16, DType::kBF16);
  }
  return Status(StatusCode::kInvalidArgument, "desc.activations ({0}) is unknown",
                static_cast<int64_t>(desc.activations));
}

jit::GemmEpilogue jit_epilogue(const Int8GemmDesc& desc) noexcept {
  return {desc.c, desc.epilogue.bias, desc.epilogue.activation, desc.epilogue.residual};
}

void use_s8_kernels(const Int8GemmDesc& desc, GemmSpec* spec) {
  const bool wide = desc.k >= kFirstWideK;
  spec->facts = {.k = desc.k, .a_bytes = 1, .weight_bytes = 1, .max_mr = 6, .wide = wide};
  const auto config = [desc, wide](int mr, int nr, int prefetch) {
    jit::Int8GemmAvx512Config c;
    c.mr = mr;
    c.nr = nr;
    c.prefetch = prefetch;
    c.wide = wide;
    c.poison = kPoisonRegisters;
    c.epilogue = jit_epilogue(desc);
    return c;
  };
  spec->kernel_name = [config](int mr, int nr, int pf) { return to_string(config(mr, nr, pf)); };
  spec->generate = [config](int mr, int nr, int pf) { return generate(config(mr, nr, pf)); };
}

void use_bf16_kernels(const Int8GemmDesc& desc, GemmSpec* spec) {
  spec->facts = {.k = desc.k, .a_bytes = 2, .weight_bytes = 1, .max_mr = 4, .wide = false};
  const auto config = [desc](int mr, int nr, int prefetch) {
    jit::Bf16GemmAvx512Config c;
    c.b = DType::kU8;
    c.mr = mr;
    c.nr = nr;
    c.prefetch = prefetch;
    c.poison = kPoisonRegisters;
    c.epilogue = jit_epilogue(desc);
    return c;
  };
  spec->kernel_name = [config](int mr, int nr, int pf) { return to_string(config(mr, nr, pf)); };
  spec->generate = [config](int mr, int nr, int pf) { return generate(config(mr, nr, pf)); };
}

GemmSpec make_spec(const Int8GemmDesc& desc) {
  GemmSpec spec;
  spec.problem.op = "int8_gemm";
  spec.problem.n = desc.n;
  spec.problem.k = desc.k;
  spec.problem.a = desc.a;
  spec.problem.activations = desc.activations;
  spec.problem.c = desc.c;
  spec.problem.epilogue = desc.epilogue;
  spec.gate_up = desc.epilogue.activation == Activation::kSiluMul;
  if (desc.activations == Int8Activations::kBF16) {
    use_bf16_kernels(desc, &spec);
  } else {
    use_s8_kernels(desc, &spec);
  }
  return spec;
}

Result<jit::KernelHandle> quantize_kernel(ContextImpl& ctx, const Int8GemmDesc& desc) {
  if (desc.activations == Int8Activations::kBF16) return jit::KernelHandle();
  const jit::QuantizeRowsAvx512Config config{desc.a, QuantizedRows::kPad, kPoisonRegisters};
  return ctx.kernel(to_string(config), [&] { return generate(config); });
}

/// One call. Phase `quantize_phase` fills the quantized rows, phase `gemm_phase` multiplies; they
/// are the same phase where every thread quantizes the few rows for itself and no barrier is
/// needed.
struct Job {
  GemmRun run;
  QuantizedRows rows;
  const jit::Kernel* quantize = nullptr;
  MatrixView a;
  const float* a_scale = nullptr;  ///< the caller's, with s8 activations
  std::byte* partials = nullptr;
  int64_t partial_bytes = 0;

  int phases() const noexcept { return quantize != nullptr && rows.copies == 1 ? 2 : 1; }
};

void job_phase(void* ctx, int phase, int tid, int nthreads) {
  const auto& job = *static_cast<const Job*>(ctx);
  const MxcsrScope mxcsr;
  GemmRun run = job.run;
  if (job.quantize != nullptr) {
    const int copy = job.rows.copies == 1 ? 0 : tid;
    if (phase == 0) {
      const Range mine = job.rows.copies == 1 ? split_range(run.m, nthreads, tid) : Range{0, run.m};
      job.rows.quantize(*job.quantize, job.a, mine, copy);
      if (job.phases() == 2) return;
    }
    run.a = job.rows.q(copy);
    run.a_stride = job.rows.q_stride;
    run.row_scale = job.a_scale != nullptr ? job.a_scale : job.rows.scale(copy);
    run.row_sum = job.rows.sum(copy);
  }
  run_gemm_part(run, tid, job.partials + tid * job.partial_bytes);
}

}  // namespace

Result<Int8Gemm> Int8Gemm::create(const Context& ctx, const Int8GemmDesc& desc) {
  if (const Status s = check(desc); !s.ok()) return s;
  GemmSpec spec = make_spec(desc);
  CreateReport report(ctx.impl(), spec.problem);
  Dispatch dispatch =
      choose_family(ctx.impl(), spec.problem,
                    {.bf16 = desc.activations == Int8Activations::kBF16 || desc.c == DType::kBF16});
  if (!dispatch.status.ok()) return report.failed(dispatch.status);
  auto plan = GemmPlan::create(ctx.impl(), std::move(spec));
  if (!plan.ok()) return report.failed(plan.status());
  auto quantize = quantize_kernel(ctx.impl(), desc);
  if (!quantize.ok()) return report.failed(quantize.status());
  report.created(plan->kernel_name(1));
  Int8Gemm gemm;
  gemm.impl_ = std::make_shared<const Impl>(
      Impl{ctx, desc, std::move(dispatch), std::move(*plan), std::move(*quantize)});
  return gemm;
}

const Int8GemmDesc& Int8Gemm::desc() const noexcept {
  static const Int8GemmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Status Int8Gemm::Impl::check_weights(const Int8Weights& w, const char* codes,
                                     const char* scale) const noexcept {
  if (const Status s = check_matrix(w.codes, codes, DType::kS8, desc.n, desc.k); !s.ok()) return s;
  const DType type = w.scale.dtype;
  if (type != DType::kF32 && type != DType::kBF16 && type != DType::kF16) {
    return Status(StatusCode::kInvalidArgument, "{s}.dtype ({0}) must be f32, bf16 or f16",
                  static_cast<int64_t>(type), 0, scale);
  }
  return check_vector(w.scale, scale, type, desc.n);
}

Result<PackedWeights> Int8Gemm::pack(const Int8Weights& w) const {
  if (impl_ == nullptr) return no_plan();
  if (impl_->gate_up()) {
    return Status(StatusCode::kInvalidArgument, "a silu_mul plan packs with pack_gate_up");
  }
  if (const Status s = impl_->check_weights(w, "w.codes", "w.scale"); !s.ok()) return s;
  return pack_int8(impl_->ctx.pool(), {&w, 1});
}

Result<PackedWeights> Int8Gemm::pack_gate_up(const Int8Weights& gate, const Int8Weights& up) const {
  if (impl_ == nullptr) return no_plan();
  if (!impl_->gate_up()) {
    return Status(StatusCode::kInvalidArgument, "pack_gate_up needs a plan with silu_mul");
  }
  if (const Status s = impl_->check_weights(gate, "gate.codes", "gate.scale"); !s.ok()) return s;
  if (const Status s = impl_->check_weights(up, "up.codes", "up.scale"); !s.ok()) return s;
  const Int8Weights parts[] = {gate, up};
  return pack_int8(impl_->ctx.pool(), {parts, 2});
}

QuantizedRows Int8Gemm::Impl::quantized_rows(int64_t m) const noexcept {
  return QuantizedRows(m, desc.k, quantize == nullptr ? 0 : ctx.pool().size());
}

size_t Int8Gemm::scratch_bytes(int64_t max_m) const noexcept {
  if (impl_ == nullptr) return 0;
  const int64_t m = std::clamp<int64_t>(max_m, 0, max_rows(impl_->desc));
  // Few rows are quantized by every thread, more rows once, so the need does not grow with m alone.
  const int64_t few = std::min(m, QuantizedRows::kRowsForEachThread);
  const int64_t rows =
      std::max(impl_->quantized_rows(m).bytes(), impl_->quantized_rows(few).bytes());
  const int64_t partials = impl_->plan.partial_bytes(m) * impl_->ctx.pool().size();
  return rows + partials == 0 ? 0 : static_cast<size_t>(rows + partials + kScratchAlign);
}

Status Int8Gemm::Impl::check_args(const Int8GemmArgs& args) const noexcept {
  const int64_t m = args.a.rows;
  if (const Status s = check_count(m, "a.rows", kMaxExtent); !s.ok()) return s;
  if (m > max_rows(desc)) {
    return Status(StatusCode::kTooLarge, "a of {0} rows and {1} columns needs too much scratch", m,
                  desc.k);
  }
  if (const Status s = check_matrix(args.a, "a", desc.a, m, desc.k); !s.ok()) return s;
  if (desc.activations == Int8Activations::kS8) {
    if (const Status s = check_vector(args.a_scale, "a_scale", DType::kF32, m); !s.ok()) return s;
  } else if (args.a_scale.data != nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  "a_scale given, but only s8 activations come with scales");
  }
  return check_operands({args.weights, args.c, args.bias, args.residual}, shape(m));
}

void Int8Gemm::Impl::run_checked(const Int8GemmArgs& args, Span<std::byte> scratch) const noexcept {
  const int64_t m = args.a.rows;
  SerialPool serial;
  ThreadPool& pool = runs_serially(plan.spec().facts, m, desc.n) ? serial : ctx.pool();
  Job job;
  job.run = make_run(plan, {args.weights, args.c, args.bias, args.residual}, shape(m));
  job.run.a = static_cast<const std::byte*>(args.a.data);
  job.run.a_stride = row_step(args.a);
  job.run.grid = choose_grid(m, column_units(plan), pool.size());
  job.a = args.a;
  job.a_scale = static_cast<const float*>(args.a_scale.data);
  job.quantize = quantize.get();
  job.rows = QuantizedRows(m, desc.k, quantize == nullptr ? 0 : pool.size());
  job.partial_bytes = plan.partial_bytes(m);
  if (job.rows.bytes() + job.partial_bytes != 0) {
    std::byte* memory = align_scratch(scratch);
    job.rows.memory = memory;
    job.partials = memory + job.rows.bytes();
  }
  pool.run(job.phases(), job_phase, &job);
}

Status Int8Gemm::run(const Int8GemmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  const RunReport report(impl_->ctx.impl(), impl_->plan.spec().problem,
                         impl_->plan.kernel_name(args.a.rows), args.a.rows);
  if (const Status s = impl_->check_args(args); !s.ok()) return report.failed(s);
  if (const Status s = check_scratch(scratch, scratch_bytes(args.a.rows)); !s.ok()) {
    return report.failed(s);
  }
  if (args.a.rows == 0 || impl_->desc.n == 0) return {};
  impl_->run_checked(args, scratch);
  report.finished();
  return {};
}

std::string Int8Gemm::explain() const {
  if (impl_ == nullptr) return no_plan().message();
  std::string text = to_string(impl_->plan.spec().problem) + '\n' + impl_->dispatch.explain();
  if (impl_->quantize != nullptr) text += "  kernel " + impl_->quantize->name + '\n';
  return text + impl_->plan.explain();
}

}  // namespace quern::inline v0
