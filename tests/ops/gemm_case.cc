#include "tests/ops/gemm_case.h"

#include <utility>

#include "reference/bf16_gemm.h"
#include "reference/fp4_gemm.h"
#include "reference/fp8_gemm.h"
#include "reference/int4_gemm.h"
#include "reference/int8_gemm.h"
#include "tests/ops/fp8_operands.h"

namespace quern::test {
namespace {

Int8Weights weights_of(const GemmData& data, int part) {
  return {data.w[part].view(), data.w_scale[part].vector()};
}

std::string sizes(const GemmCase& c) {
  return " pads a:" + std::to_string(c.a_pad) + " w:" + std::to_string(c.w_pad) +
         " c:" + std::to_string(c.c_pad) + " r:" + std::to_string(c.residual_pad);
}

std::string int4_fields(const GemmCase& c) {
  constexpr const char* kNames[] = {"gptq", "awq", "rowmajor"};
  std::string text = std::string(" storage:") + kNames[static_cast<int>(c.storage)];
  if (c.zero_offset != 0) text += " offset:" + std::to_string(c.zero_offset);
  if (c.problem.act_order) text += " g_idx:" + std::to_string(static_cast<int>(c.order));
  return text;
}

}  // namespace

Int4Shape GemmCase::int4_shape() const {
  Int4Shape shape;
  Int4GemmDesc& d = shape.desc;
  d.n = problem.n;
  d.k = problem.k;
  d.group = problem.group == 0 ? -1 : problem.group;
  d.zeros = problem.zeros;
  d.scale = problem.scale;
  d.act_order = problem.act_order;
  d.activations = problem.activations == Int8Activations::kBF16 ? Int4Activations::kBF16
                                                                : Int4Activations::kDynamicS8;
  d.c = problem.c;
  d.epilogue = problem.epilogue;
  d.invariance = invariance;
  shape.storage = storage;
  shape.zero_offset = zero_offset;
  return shape;
}

Fp4GemmDesc GemmCase::fp4_desc() const {
  const Problem& p = problem;
  return {p.n, p.k, p.fp4, p.c, p.epilogue, invariance};
}

Fp8GemmDesc GemmCase::fp8_desc() const {
  const auto block = [](int64_t size) { return size == 0 ? -1 : size; };
  return {
      problem.n, problem.k,        problem.weights, block(problem.block_n), block(problem.block_k),
      problem.c, problem.epilogue, invariance};
}

GemmCase make_case(const GemmKind& kind, int64_t m, int64_t n, int64_t k) {
  GemmCase c;
  c.problem.op = kind.op;
  c.problem.m = m;
  c.problem.n = n;
  c.problem.k = k;
  c.problem.activations = kind.activations;
  c.problem.a = kind.a;
  c.problem.fp4 = kind.fp4;
  return c;
}

GemmCase make_case(const GemmKind& kind, const std::string& shape) {
  const Result<Problem> p = parse_problem(std::string(kind.op) + "/" + shape);
  EXPECT_TRUE(p.ok()) << shape;
  return p.ok() ? make_case(kind, p->m, p->n, p->k) : GemmCase();
}

void vary(GemmCase& c, uint64_t variant) {
  Rng rng(variant);
  c.seed = rng.next();
  c.fill = draw_fill(rng);
  c.problem.c = rng.one_in(2) ? DType::kF32 : DType::kBF16;
  c.problem.epilogue.bias = rng.one_in(2);
  c.problem.epilogue.residual = rng.one_in(2);
  c.problem.epilogue.activation = rng.one_in(4) ? Activation::kSiluMul : Activation::kNone;
  c.residual_is_c = c.problem.epilogue.residual && rng.one_in(2);
  c.scale = draw_scale_type(rng);
  c.a_pad = draw_pad(rng);
  c.w_pad = draw_pad(rng);
  c.c_pad = draw_pad(rng);
  c.residual_pad = draw_pad(rng);
  draw_placement(c, rng);
  const bool divisor = c.is_fp4() && rng.one_in(3);
  if (divisor && c.problem.fp4 == Fp4Format::kNvfp4) c.global_is = Fp4Global::kDivisor;
  if (c.is_fp8()) {
    c.problem.weights = rng.one_in(2) ? DType::kE4M3 : DType::kE5M2;
    c.problem.block_n = draw_block_n(rng, c.problem.n);
    c.problem.block_k = draw_group(rng, c.problem.k);
  }
  if (!c.is_int4()) return;
  c.problem.group = draw_group(rng, c.problem.k);
  c.problem.zeros = static_cast<Int4Zeros>(rng.in(0, 2));
  c.problem.scale = draw_scale_type(rng);
  c.problem.act_order = rng.one_in(3);
  c.order = static_cast<GroupOrder>(rng.in(0, 4));
  c.storage = rng.pick(kInt4Storages);
  c.zero_offset = rng.one_in(2) ? 1 : 0;
}

GemmCase random_case(const std::string& op, uint64_t seed) {
  Rng rng(seed);
  std::vector<GemmKind> kinds;
  for (const GemmKind& kind : all_gemm_kinds()) {
    if (op == kind.op) kinds.push_back(kind);
  }
  // Two dimensions small, one of any size, so that the product stays near 2^15 and every dimension
  // is sometimes long.
  const auto small = [&rng] { return rng.in(rng.one_in(20) ? 0 : 1, 40); };
  int64_t m = small(), n = small(), k = small();
  switch (rng.in(0, 2)) {
    case 0:
      m = rng.in(1, 100);
      break;
    case 1:
      n = rng.in(1, 300);
      break;
    default:
      k = rng.in(1, 600);
      break;
  }
  if (op == "int4_gemm" || op == "fp8_gemm") {  // several groups are what it is about
    m = rng.one_in(3) ? 1 : std::min<int64_t>(m, 20);
    if (rng.one_in(2)) k = rng.in(1, 400);
  }
  GemmCase c = make_case(rng.pick(kinds), m, n, k);
  vary(c, rng.next());
  return c;
}

std::string to_string(const GemmCase& c) {
  return to_string(c.problem) + " fill:" + to_string(c.fill) +
         (c.is_int4() ? int4_fields(c) : std::string(" scale:") + to_string(c.scale)) + sizes(c) +
         (c.residual_is_c ? " residual=c" : "") +
         (c.global_is == Fp4Global::kDivisor ? " divisor" : "") +
         (c.invariance == Invariance::kFastest ? " fastest" : "") + placement_and_seed(c);
}

GemmData::GemmData(const GemmCase& g) {
  const Problem& p = g.problem;
  Rng rng(g.seed);
  Placements places(g);
  a = TestMatrix(p.a, p.m, p.k, g.a_pad, places.next());
  a_scale = TestMatrix(DType::kF32, 1, p.m, 0, places.next());
  for (int part = 0; part < g.parts() && g.has_plain_weights(); ++part) {
    const DType type = g.is_int8() ? DType::kS8 : g.is_fp8() ? p.weights : DType::kBF16;
    w[part] = TestMatrix(type, p.n, p.k, g.w_pad, places.next());
    w_scale[part] = g.is_fp8() ? TestMatrix(g.scale, blocks_of(p.n, p.block_n),
                                            blocks_of(p.k, p.block_k), g.w_pad, places.next())
                               : TestMatrix(g.scale, 1, p.n, 0, places.next());
  }
  bias = TestMatrix(DType::kF32, 1, g.parts() * p.n, 0, places.next());
  residual = TestMatrix(p.c, p.m, p.n, g.residual_pad, places.next());
  c = TestMatrix(p.c, p.m, p.n, g.c_pad, places.next());

  const int64_t limit = exact_limit(p.k);
  fill_operand(a, rng, g.fill, limit);
  fill_scales(a_scale, rng, g.fill);
  if (g.is_int4()) {
    const Int4Shape shape = g.int4_shape();
    for (int part = 0; part < g.parts(); ++part) {
      int4[part] = Int4Operand(shape, g.fill, limit, rng, g.w_pad, places);
    }
    if (p.act_order) g_idx = make_g_idx(shape, g.order, rng, places);
  }
  for (int part = 0; part < g.parts() && g.is_fp4(); ++part) {
    fp4[part] = Fp4Operand(g.fp4_desc(), g.global_is, g.fill, limit, rng, g.w_pad, places);
  }
  for (int part = 0; part < g.parts() && g.has_plain_weights(); ++part) {
    if (g.is_fp8()) {
      fill_fp8(w[part], rng, g.fill, limit);
      fill_block_scales(w_scale[part], rng, g.fill);
      continue;
    }
    fill_operand(w[part], rng, g.fill, limit);
    fill_scales(w_scale[part], rng, g.fill);
  }
  fill_operand(bias, rng, g.fill, 8);
  fill_operand(residual, rng, g.fill, 8);
  if (g.residual_is_c) {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) c.set_bits(i, j, residual.bits(i, j));
    }
  }
}

MatrixView GemmData::residual_view(const GemmCase& g) {
  return g.residual_is_c ? c.view() : residual.view();
}

void GemmData::protect_inputs() {
  for (TestMatrix* m :
       {&a, &a_scale, &w[0], &w_scale[0], &w[1], &w_scale[1], &bias, &residual, &g_idx}) {
    if (m->view().data) m->buffer().make_read_only();
  }
  for (Int4Operand& operand : int4) {
    if (operand.words.view().data) operand.protect();
  }
  for (Fp4Operand& operand : fp4) operand.protect();
}

::testing::AssertionResult GemmData::surroundings_intact() const {
  if (!c.surroundings_intact()) {
    return ::testing::AssertionFailure() << "wrote into the gap of c's rows or beside c";
  }
  return ::testing::AssertionSuccess();  // the inputs are read-only memory
}

Result<GemmOp> GemmOp::create(const Context& ctx, const GemmCase& c) {
  GemmOp op;
  op.gate_up_ = c.gate_up();
  const Problem& p = c.problem;
  if (c.is_int8()) {
    Int8GemmDesc desc{p.n, p.k, p.activations, p.a, p.c, p.epilogue, c.invariance};
    Result<Int8Gemm> plan = Int8Gemm::create(ctx, desc);
    if (!plan.ok()) return plan.status();
    op.int8_ = std::move(plan).value();
  } else if (c.is_int4()) {
    Result<Int4Gemm> plan = Int4Gemm::create(ctx, c.int4_shape().desc);
    if (!plan.ok()) return plan.status();
    op.int4_ = std::move(plan).value();
  } else if (c.is_fp4()) {
    Result<Fp4Gemm> plan = Fp4Gemm::create(ctx, c.fp4_desc());
    if (!plan.ok()) return plan.status();
    op.fp4_ = std::move(plan).value();
  } else if (c.is_fp8()) {
    Result<Fp8Gemm> plan = Fp8Gemm::create(ctx, c.fp8_desc());
    if (!plan.ok()) return plan.status();
    op.fp8_ = std::move(plan).value();
  } else {
    Bf16GemmDesc desc{p.n, p.k, p.c, p.epilogue, c.invariance};
    Result<Bf16Gemm> plan = Bf16Gemm::create(ctx, desc);
    if (!plan.ok()) return plan.status();
    op.bf16_ = std::move(plan).value();
  }
  return op;
}

Status GemmOp::keep(Result<PackedWeights> packed) {
  if (packed.ok()) packed_ = std::move(packed).value();
  return packed.status();
}

Status GemmOp::pack(const GemmData& data) {
  return pack_as(data, gate_up_);
}

Status GemmOp::pack_as(const GemmData& data, bool gate_up) {
  if (int8_) {
    return keep(gate_up ? int8_->pack_gate_up(weights_of(data, 0), weights_of(data, 1))
                        : int8_->pack(weights_of(data, 0)));
  }
  if (int4_) {
    return keep(gate_up ? int4_->pack_gate_up(data.int4_weights(0), data.int4_weights(1))
                        : int4_->pack(data.int4_weights(0)));
  }
  if (fp4_) {
    return keep(gate_up ? fp4_->pack_gate_up(data.fp4[0].weights(), data.fp4[1].weights())
                        : fp4_->pack(data.fp4[0].weights()));
  }
  if (fp8_) {
    return keep(gate_up ? fp8_->pack_gate_up(data.fp8_weights(0), data.fp8_weights(1))
                        : fp8_->pack(data.fp8_weights(0)));
  }
  return keep(gate_up ? bf16_->pack_gate_up(data.w[0].view(), data.w[1].view())
                      : bf16_->pack(data.w[0].view()));
}

Status GemmOp::pack_view(const MatrixView& w, const VectorView& scale) {
  if (fp8_) return keep(fp8_->pack({w, {scale.data, scale.dtype, 1, 1, 1}}));
  return keep(int8_ ? int8_->pack({w, scale}) : bf16_->pack(w));
}

Status GemmOp::pack_fp8(const Fp8Weights& w) {
  return keep(fp8_->pack(w));
}

Status GemmOp::pack_int4(const Int4Weights& w, const PackProgress& progress) {
  return keep(int4_->pack(w, progress));
}

Status GemmOp::pack_fp4(const Fp4Weights& w) {
  return keep(fp4_->pack(w));
}

size_t GemmOp::scratch_bytes(int64_t max_m) const {
  if (fp4_) return fp4_->scratch_bytes(max_m);
  if (int4_) return int4_->scratch_bytes(max_m);
  if (fp8_) return fp8_->scratch_bytes(max_m);
  return int8_ ? int8_->scratch_bytes(max_m) : bf16_->scratch_bytes(max_m);
}

std::string GemmOp::explain() const {
  if (fp4_) return fp4_->explain();
  if (int4_) return int4_->explain();
  if (fp8_) return fp8_->explain();
  return int8_ ? int8_->explain() : bf16_->explain();
}

Status GemmOp::run(const Args& args, Span<std::byte> scratch) const {
  if (int8_) {
    return int8_->run({args.a, args.a_scale, &packed_, args.c, args.bias, args.residual}, scratch);
  }
  if (int4_) return int4_->run({args.a, &packed_, args.c, args.bias, args.residual}, scratch);
  if (fp4_) return fp4_->run({args.a, &packed_, args.c, args.bias, args.residual}, scratch);
  if (fp8_) return fp8_->run({args.a, &packed_, args.c, args.bias, args.residual}, scratch);
  return bf16_->run({args.a, &packed_, args.c, args.bias, args.residual}, scratch);
}

Status GemmOp::run(const Args& args, unsigned char poison) const {
  return run_in_own_scratch(scratch_bytes(args.a.rows), poison,
                            [&](Span<std::byte> scratch) { return run(args, scratch); });
}

GemmOp::Args args_of(const GemmCase& c, GemmData& data) {
  GemmOp::Args args;
  args.a = data.a.view();
  args.c = data.c.mutable_view();
  if (c.is_int8() && c.problem.activations == Int8Activations::kS8) {
    args.a_scale = data.a_scale.vector();
  }
  if (c.problem.epilogue.bias) args.bias = data.bias.vector();
  if (c.problem.epilogue.residual) args.residual = data.residual_view(c);
  return args;
}

GemmOp::Args row_block(const GemmOp::Args& all, int64_t first, int64_t rows) {
  const auto skip = [first](auto& view, int64_t stride) {
    if (!view.data) return;
    const int64_t bytes = first * stride * static_cast<int64_t>(size_of(view.dtype));
    view.data = const_cast<char*>(static_cast<const char*>(view.data)) + bytes;
  };
  GemmOp::Args block = all;
  skip(block.a, all.a.row_stride);
  skip(block.c, all.c.row_stride);
  skip(block.residual, all.residual.row_stride);
  skip(block.a_scale, 1);
  block.a.rows = block.c.rows = rows;
  if (block.residual.data) block.residual.rows = rows;
  if (block.a_scale.data) block.a_scale.size = rows;
  return block;
}

reference::Exact exact_answer(const GemmCase& g, GemmData& data) {
  const Problem& p = g.problem;
  reference::Exact exact;
  if (g.is_int8()) {
    reference::Int8GemmArgs args;
    args.a = data.a.view();
    args.a_scale = data.a_scale.vector();
    args.weights = weights_of(data, 0);
    if (g.gate_up()) args.up_weights = weights_of(data, 1);
    args.bias = data.bias.vector();
    args.residual = data.residual_view(g);
    exact = reference::int8_gemm_exact({p.n, p.k, p.activations, p.a, p.c, p.epilogue}, args);
  } else if (g.is_int4()) {
    reference::Int4GemmArgs args;
    args.a = data.a.view();
    args.weights = data.int4_weights(0);
    if (g.gate_up()) args.up_weights = data.int4_weights(1);
    args.bias = data.bias.vector();
    args.residual = data.residual_view(g);
    exact = reference::int4_gemm_exact(g.int4_shape().desc, args);
  } else if (g.is_fp4()) {
    reference::Fp4GemmArgs args;
    args.a = data.a.view();
    args.weights = data.fp4[0].weights();
    if (g.gate_up()) args.up_weights = data.fp4[1].weights();
    args.bias = data.bias.vector();
    args.residual = data.residual_view(g);
    exact = reference::fp4_gemm_exact(g.fp4_desc(), args);
  } else if (g.is_fp8()) {
    reference::Fp8GemmArgs args;
    args.a = data.a.view();
    args.weights = data.fp8_weights(0);
    if (g.gate_up()) args.up_weights = data.fp8_weights(1);
    args.bias = data.bias.vector();
    args.residual = data.residual_view(g);
    exact = reference::fp8_gemm_exact(g.fp8_desc(), args);
  } else {
    reference::Bf16GemmArgs args;
    args.a = data.a.view();
    args.weights = data.w[0].view();
    if (g.gate_up()) args.up_weights = data.w[1].view();
    args.bias = data.bias.vector();
    args.residual = data.residual_view(g);
    exact = reference::bf16_gemm_exact({p.n, p.k, p.c, p.epilogue}, args);
  }
  if (g.fill == Fill::kExact && !g.gate_up()) drop_bounds(exact);
  return exact;
}

}  // namespace quern::test
