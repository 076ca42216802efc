#include "ops/gemm_operands.h"

#include "ops/overlap.h"
#include "ops/status_text.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

/// 16 depths of 4 bits share a byte.
constexpr int64_t kCodeBytesOfAScale = 8;

Status unused(const void* data, const char* name) noexcept {
  if (data == nullptr) return {};
  return Status(StatusCode::kInvalidArgument, "{s} given, but the plan's Desc does not ask for it",
                0, 0, name);
}

/// Whether every element of the residual is the element of C that it is added to.
bool same_elements(const MatrixView& residual, const MatrixView& c) noexcept {
  return residual.data == c.data && row_step(residual) == row_step(c);
}

}  // namespace

Status no_plan() noexcept {
  return Status(StatusCode::kInvalidArgument, "this op holds no plan: it comes from create()");
}

Status check_weights(const PackedWeights* weights, WeightLayout layout, int64_t n,
                     int64_t k) noexcept {
  if (weights == nullptr || weights->empty()) {
    return Status(StatusCode::kInvalidArgument, "weights is null or empty");
  }
  if (weights->layout() != layout) {
    return Status(StatusCode::kInvalidArgument,
                  "weights.layout ({0:layout}) must be the layout this plan packs ({1:layout})",
                  status_value(weights->layout()), status_value(layout));
  }
  if (weights->n() != n) {
    return Status(StatusCode::kInvalidArgument, "weights.n ({0}) must equal desc.n ({1})",
                  weights->n(), n);
  }
  if (weights->k() != k) {
    return Status(StatusCode::kInvalidArgument, "weights.k ({0}) must equal desc.k ({1})",
                  weights->k(), k);
  }
  return {};
}

Status check_operands(const GemmOperands& o, const GemmShape& shape) noexcept {
  if (const Status s = check_weights(o.weights, shape.layout, shape.n, shape.k); !s.ok()) return s;
  if (o.weights->batch() != 1) {
    return Status(StatusCode::kInvalidArgument, "weights.batch ({0}) must be 1",
                  o.weights->batch());
  }
  if (const Status s = check_matrix(o.c, "c", shape.c, shape.m, shape.n); !s.ok()) return s;
  const int64_t parts = shape.epilogue.activation == Activation::kSiluMul ? 2 : 1;
  const Status bias = shape.epilogue.bias
                          ? check_vector(o.bias, "bias", DType::kF32, parts * shape.n)
                          : unused(o.bias.data, "bias");
  if (!bias.ok()) return bias;
  return shape.epilogue.residual ? check_matrix(o.residual, "residual", shape.c, shape.m, shape.n)
                                 : unused(o.residual.data, "residual");
}

Status check_memory(const GemmOperands& o, const MatrixView& a, const VectorView& a_scale,
                    Span<std::byte> scratch) noexcept {
  const Region c{MatrixView(o.c)};
  const Region buffer(scratch.data(), scratch.size());
  const struct {
    const char* name;
    Region region;
  } inputs[] = {{"a", Region(a)},
                {"a_scale", Region(a_scale)},
                {"weights", Region(o.weights->data(), o.weights->bytes())},
                {"bias", Region(o.bias)},
                {"residual", Region(o.residual)}};
  for (const auto& input : inputs) {
    const Status s =
        check_apart(buffer, input.region,
                    "scratch must not overlap {s}, which begins {0} bytes after it", input.name);
    if (!s.ok()) return s;
    const bool residual = input.name == inputs[4].name;
    if (residual && same_elements(o.residual, o.c)) continue;
    const char* rule = residual ? "residual must be c itself or not overlap it, but begins {0} "
                                  "bytes after c or has another row_stride"
                                : "c must not overlap {s}, which begins {0} bytes after it";
    if (const Status t = check_apart(c, input.region, rule, input.name); !t.ok()) return t;
  }
  return check_apart(buffer, c, "scratch must not overlap {s}, which begins {0} bytes after it",
                     "c");
}

GemmRun make_run(const GemmPlan& plan, const GemmOperands& o, const GemmShape& shape) noexcept {
  const auto c_bytes = static_cast<int64_t>(size_of(shape.c));
  GemmRun run;
  run.plan = &plan;
  run.k = plan.family(shape.m).facts.k;
  run.panels = o.weights->data();
  run.panel_bytes = o.weights->panel_bytes();
  run.col_scale = o.weights->scales();
  run.block_scale = reinterpret_cast<const std::byte*>(o.weights->block_scales());
  run.block_scale_stride = o.weights->panel_bytes() / kCodeBytesOfAScale;
  run.m = shape.m;
  run.c = static_cast<std::byte*>(o.c.data);
  run.c_bytes = c_bytes;
  run.c_stride = row_step(o.c);
  run.bias = static_cast<const float*>(o.bias.data);
  run.residual = static_cast<const std::byte*>(o.residual.data);
  run.residual_stride = row_step(o.residual);
  return run;
}

Status check_scratch(Span<std::byte> scratch, size_t needed) noexcept {
  if (scratch.size() >= needed && (needed == 0 || scratch.data() != nullptr)) return {};
  return Status(StatusCode::kInvalidArgument,
                "scratch has {0} bytes; scratch_bytes(m) asks for {1} (is m above max_m?)",
                static_cast<int64_t>(scratch.data() == nullptr ? 0 : scratch.size()),
                static_cast<int64_t>(needed));
}

std::byte* align_scratch(Span<std::byte> scratch) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  return scratch.data() + (-address & (kScratchAlign - 1));
}

bool runs_serially(const GemmFacts& facts, int64_t m, int64_t n) noexcept {
  // About two microseconds of one core, either streaming weights from L2 or multiplying.
  constexpr double kWeightBytes = 96 << 10;
  constexpr double kProducts = 1 << 20;
  const double weights = static_cast<double>(n) * static_cast<double>(facts.k);
  return weights * facts.weight_bits / 8 < kWeightBytes &&
         weights * static_cast<double>(m) < kProducts;
}

}  // namespace quern::inline v0
