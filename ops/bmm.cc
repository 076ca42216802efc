#include "quern/bmm.h"

#include <algorithm>
#include <utility>

#include "ops/bmm_run.h"
#include "ops/checked.h"
#include "ops/gemm_families.h"
#include "ops/gemm_operands.h"
#include "ops/no_throw.h"
#include "ops/overlap.h"
#include "ops/packed_weights_builder.h"
#include "ops/problem_text.h"
#include "ops/run_report.h"
#include "ops/status_text.h"
#include "ops/validate.h"
#include "ops/weight_packing.h"

namespace quern::inline v0 {

// A nested type of an exported class would be exported with it.
struct [[gnu::visibility("hidden")]] Bmm::Impl {
  BmmDesc desc;
  Context ctx;
  Dispatch dispatch;
  GemmPlan plan;

  bool plain() const noexcept {
    return desc.b == BmmOperand::kPlainNK || desc.b == BmmOperand::kPlainKN;
  }
  WeightLayout layout() const noexcept {
    return desc.b == BmmOperand::kS8     ? WeightLayout::kU8Vnni4N16
           : desc.b == BmmOperand::kE4M3 ? WeightLayout::kE4M3Vnni2N16Batch
                                         : WeightLayout::kBf16Vnni2N16;
  }
  Status check_weights(const BmmWeights& w) const noexcept;
  size_t scratch_bytes(int64_t max_m) const noexcept;
  Status check_b(const BmmArgs& args) const noexcept;
  Status check_args(const BmmArgs& args) const noexcept;
  Status check_memory(const BmmArgs& args, Span<std::byte> scratch) const noexcept;
  /// The call as one product of batch * M rows, where that is one: see fold().
  bool folds(const BmmArgs& args, size_t scratch) const noexcept;
  /// Returns how many threads computed.
  int run(const BmmArgs& args, Span<std::byte> scratch) const noexcept;
};

namespace {

// Bytes of a thread's scratch stay countable, whatever the number of threads.
constexpr int64_t kMaxBmmK = int64_t{1} << 40;

Status check(const BmmDesc& desc) noexcept {
  if (const Status s = check_count(desc.n, "desc.n", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_count(desc.k, "desc.k", kMaxBmmK); !s.ok()) return s;
  if (const Status s = check_dtype(desc.c, "desc.c", {DType::kBF16, DType::kF32}); !s.ok())
    return s;
  if (desc.b > BmmOperand::kE4M3) {
    return Status(
        StatusCode::kInvalidArgument,
        "desc.b ({0}) must be kBF16 (0), kS8 (1), kPlainNK (2), kPlainKN (3) or kE4M3 (4)",
        static_cast<int64_t>(desc.b));
  }
  return check_enums({}, desc.invariance);
}

/// What a packed B holds before it is packed.
DType stored_type(BmmOperand b) noexcept {
  return b == BmmOperand::kS8 ? DType::kS8 : b == BmmOperand::kE4M3 ? DType::kE4M3 : DType::kBF16;
}

GemmSpec make_spec(const BmmDesc& desc, const ContextImpl& ctx) {
  GemmSpec spec;
  spec.problem.op = "bmm";
  spec.problem.n = desc.n;
  spec.problem.k = desc.k;
  spec.problem.b = desc.b;
  spec.problem.c = desc.c;
  spec.blocking = bmm_blocking;
  const DType stored = stored_type(desc.b);
  use_bf16_families(stored == DType::kS8 ? DType::kU8 : stored, ctx, desc.invariance, &spec);
  return spec;
}

/// B as the plan wants it stored: rows and columns of each matrix.
Status check_stored(const BatchView& b, const char* name, DType dtype, int64_t batch,
                    const BmmDesc& desc, BmmOrder order) noexcept {
  return order == BmmOrder::kNK ? check_batch(b, name, dtype, batch, desc.n, desc.k)
                                : check_batch(b, name, dtype, batch, desc.k, desc.n);
}

/// How the rows of a batch follow each other a fixed step apart: matrix by matrix, as in dense
/// [batch, M, K], or row by row, as in [M, batch, K].
enum class RowOrder : uint8_t { kByMatrix, kByRow };

bool in_order(const BatchView& v, RowOrder order) noexcept {
  if (v.batch_stride == 0) return false;
  if (v.rows == 1) return true;
  return order == RowOrder::kByMatrix ? v.batch_stride == v.rows * v.row_stride
                                      : v.row_stride == v.batch * v.batch_stride;
}

/// All rows as one matrix.
template <typename View>
void fold(View* v) noexcept {
  // One row a matrix, or row by row: the next row is the next matrix's.
  if (v->rows == 1 || v->row_stride == v->batch * v->batch_stride) v->row_stride = v->batch_stride;
  v->rows *= v->batch;
  v->batch = 1;
}

BmmOrder order_of(BmmOperand b) noexcept {
  return b == BmmOperand::kPlainKN ? BmmOrder::kKN : BmmOrder::kNK;
}

}  // namespace

Result<Bmm> Bmm::create(const Context& ctx, const BmmDesc& desc) {
  return no_throw(kNoMemoryForPlan, [&]() -> Result<Bmm> {
    if (const Status s = ctx.status(); !s.ok()) return s;
    if (const Status s = check(desc); !s.ok()) return s;
    GemmSpec spec = make_spec(desc, ctx.impl());
    CreateReport report(ctx.impl(), spec.problem);
    auto planned = plan_gemm(ctx.impl(), std::move(spec), &report);
    if (!planned.ok()) return planned.status();
    report.created(planned->plan.kernel_name(kMaxExtent));
    Bmm op;
    op.impl_ = std::make_shared<const Impl>(
        Impl{desc, ctx, std::move(planned->dispatch), std::move(planned->plan)});
    return op;
  });
}

IsaLevel Bmm::isa() const noexcept {
  return impl_ == nullptr ? IsaLevel::kNone : impl_->plan.spec().problem.isa;
}

const BmmDesc& Bmm::desc() const noexcept {
  static const BmmDesc kNone;
  return impl_ == nullptr ? kNone : impl_->desc;
}

Status Bmm::Impl::check_weights(const BmmWeights& w) const noexcept {
  if (plain()) {
    return Status(StatusCode::kInvalidArgument,
                  "this plan takes a plain B in every run; there is nothing to pack");
  }
  if (w.order != BmmOrder::kNK && w.order != BmmOrder::kKN) {
    return Status(StatusCode::kInvalidArgument, "w.order ({0}) must be kNK (0) or kKN (1)",
                  static_cast<int64_t>(w.order));
  }
  const int64_t batch = w.values.batch;
  if (const Status s = check_count(batch, "w.values.batch", kMaxExtent); !s.ok()) return s;
  const DType type = stored_type(desc.b);
  const bool codes = type != DType::kBF16;
  const Status values = check_stored(w.values, "w.values", type, batch, desc, w.order);
  if (!values.ok()) return values;
  const MatrixView& scale = w.scale;
  if (!codes) {
    if (scale.data == nullptr) return {};
    return Status(
        StatusCode::kInvalidArgument,
        "w.scale given, but w.values ({0:dtype}) has none: only s8 and e4m3 come with scales",
        status_value(w.values.dtype));
  }
  if (scale.data == nullptr) {
    if (batch == 0 || desc.n == 0) return {};
    return Status(StatusCode::kInvalidArgument,
                  "w.scale is null, but w.values ({0:dtype}) needs scales",
                  status_value(w.values.dtype));
  }
  const Status known =
      check_dtype(scale.dtype, "w.scale.dtype", {DType::kF32, DType::kBF16, DType::kF16});
  if (!known.ok()) return known;
  return check_matrix(scale, "w.scale", scale.dtype, batch, scale.cols == 1 ? 1 : desc.n);
}

Result<PackedWeights> Bmm::pack(const BmmWeights& weights) const {
  if (impl_ == nullptr) return no_plan();
  if (const Status s = impl_->check_weights(weights); !s.ok()) return s;
  return no_throw("no memory for packed weights",
                  [&] { return pack_batch(impl_->ctx.pool(), weights); });
}

size_t Bmm::Impl::scratch_bytes(int64_t max_m) const noexcept {
  const int64_t m = std::clamp<int64_t>(max_m, 0, kMaxExtent);
  const int64_t bytes = bmm_scratch(plan, m, plain()).bytes() * ctx.pool().size();
  return bytes == 0 ? 0 : static_cast<size_t>(bytes + kScratchAlign);
}

size_t Bmm::scratch_bytes(int64_t max_m) const noexcept {
  return impl_ == nullptr ? 0 : impl_->scratch_bytes(max_m);
}

Status Bmm::Impl::check_b(const BmmArgs& args) const noexcept {
  if (plain()) {
    if (args.weights != nullptr) {
      return Status(StatusCode::kInvalidArgument, "weights given, but this plan takes a plain B");
    }
    return check_stored(args.b, "b", DType::kBF16, args.c.batch, desc, order_of(desc.b));
  }
  if (args.b.data != nullptr) {
    return Status(StatusCode::kInvalidArgument, "b given, but this plan takes packed weights");
  }
  if (const Status s = quern::check_weights(args.weights, layout(), desc.n, desc.k); !s.ok()) {
    return s;
  }
  const int64_t batch = args.weights->batch();
  if (batch == 1 || batch == args.c.batch || args.c.batch == 0) return {};
  return Status(StatusCode::kInvalidArgument, "weights.batch ({0}) must be 1 or that of c ({1})",
                batch, args.c.batch);
}

Status Bmm::Impl::check_args(const BmmArgs& args) const noexcept {
  if (const Status s = check_count(args.c.batch, "c.batch", kMaxExtent); !s.ok()) return s;
  if (const Status s = check_count(args.a.rows, "a.rows", kMaxExtent); !s.ok()) return s;
  const int64_t batch = args.c.batch;
  const int64_t m = args.a.rows;
  if (const Status s = check_batch(args.a, "a", DType::kBF16, batch, m, desc.k); !s.ok()) return s;
  if (const Status s = check_batch(args.c, "c", desc.c, batch, m, desc.n); !s.ok()) return s;
  return check_b(args);
}

Status Bmm::Impl::check_memory(const BmmArgs& args, Span<std::byte> scratch) const noexcept {
  if (overlaps_itself(args.c)) {
    return Status(StatusCode::kInvalidArgument,
                  "matrices of c must not overlap: batch_stride ({0}), row_stride ({1})",
                  args.c.batch_stride, args.c.row_stride);
  }
  const BatchRegion c{BatchView(args.c)};
  const BatchRegion buffer(Region(scratch.data(), scratch.size()));
  const struct {
    const char* name;
    BatchRegion region;
  } inputs[] = {{"a", BatchRegion(args.a)},
                {plain() ? "b" : "weights",
                 plain() ? BatchRegion(args.b)
                         : BatchRegion(Region(args.weights->data(), args.weights->bytes()))}};
  for (const auto& input : inputs) {
    const Status s =
        check_apart(buffer, input.region,
                    "scratch must not overlap {s}, which begins {0} bytes after it", input.name);
    if (!s.ok()) return s;
    const Status t = check_apart(
        c, input.region, "c must not overlap {s}, which begins {0} bytes after it", input.name);
    if (!t.ok()) return t;
  }
  return check_apart(buffer, c, "scratch must not overlap {s}, which begins {0} bytes after it",
                     "c");
}

// B is read once instead of once a matrix. The bits are the same, as those of a row depend neither
// on M nor on the other rows, except where kFastest has a family of its own for few rows: there
// they may depend on M, but not on batch. Scratch was promised to depend on M alone, so it takes a
// caller who has enough.
bool Bmm::Impl::folds(const BmmArgs& args, size_t scratch) const noexcept {
  const int64_t batch = args.c.batch, m = args.a.rows;
  if (batch < 2 || m == 0 || desc.n == 0 || desc.k == 0) return false;
  if (plain() ? args.b.batch_stride != 0 : args.weights->batch() != 1) return false;
  if (&plan.family(m) != &plan.family(batch * m) || scratch_bytes(batch * m) > scratch) {
    return false;
  }
  const BatchView c(args.c);
  for (const RowOrder order : {RowOrder::kByMatrix, RowOrder::kByRow}) {
    if (in_order(args.a, order) && in_order(c, order)) return true;
  }
  return false;
}

int Bmm::Impl::run(const BmmArgs& args, Span<std::byte> scratch) const noexcept {
  BmmCall call;
  call.plan = &plan;
  call.batch = args.c.batch;
  call.m = args.a.rows;
  call.a = matrix_of(args.a);
  call.a_step = batch_step(args.a);
  call.run.a_stride = row_step(call.a);
  call.run.c_bytes = static_cast<int64_t>(size_of(desc.c));
  call.run.c_stride = row_step(matrix_of(args.c));
  call.c = {static_cast<std::byte*>(args.c.data), batch_step(args.c)};
  if (plain()) {
    call.b = PanelSource(matrix_of(args.b), order_of(desc.b));
    call.b_step = batch_step(args.b);
  } else {
    const PackedWeights& w = *args.weights;
    const int64_t panels = w.batch() == 1 ? 0 : column_units(plan);
    call.run.panel_bytes = w.panel_bytes();
    call.panels = {w.data(), panels * w.panel_bytes()};
    call.col_scale = {w.scales(), w.scales() == nullptr ? 0 : panels * kPanelColumns};
  }
  call.scratch = bmm_scratch(plan, call.m, plain());
  if (call.scratch.bytes() != 0) call.memory = align_scratch(scratch);
  SerialPool serial;
  const GemmFacts& facts = plan.family(call.m).facts;
  ThreadPool& pool = runs_serially(facts, call.m, call.batch * desc.n) ? serial : ctx.pool();
  run_bmm(pool, &call);
  return pool.size();
}

Status Bmm::run(const BmmArgs& args, Span<std::byte> scratch) const noexcept {
  if (impl_ == nullptr) return no_plan();
  const Impl& impl = *impl_;
  const int64_t m = args.a.rows;
  RunReport report(impl.ctx.impl(), impl.plan.spec().problem, impl.plan.kernel_name(m),
                   {args.c.batch, m, impl.plan.family(m).level});
  if (const Status s = impl.check_args(args); !s.ok()) return report.failed(s);
  size_t needed = impl.scratch_bytes(m);
  if (const Status s = check_scratch(scratch, needed); !s.ok()) return report.failed(s);
  BmmArgs run_args = args;
  if (impl.folds(args, scratch.size())) {
    fold(&run_args.a);
    fold(&run_args.c);
    run_args.b.batch = 1;
    needed = impl.scratch_bytes(run_args.a.rows);
    report.runs(impl.plan.kernel_name(run_args.a.rows));
  }
  const Status apart = impl.check_memory(args, {scratch.data(), needed});
  if (!apart.ok()) return report.failed(apart);
  if (args.c.batch == 0 || m == 0 || impl.desc.n == 0) return {};
  report.finished(impl.run(run_args, scratch));
  return {};
}

std::string Bmm::explain() const {
  if (impl_ == nullptr) return no_plan().message();
  return plan_name(impl_->plan.spec().problem) + '\n' + impl_->dispatch.explain() +
         impl_->plan.explain();
}

}  // namespace quern::inline v0
