#include "bench/peer_onednn.h"

#ifdef QUERN_BENCH_ONEDNN

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "bench/cold_weights.h"
#include "bench/operands.h"

namespace quern::bench {
namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;

// 4-bit weights and groups of scales came with 3.5.
#define QUERN_ONEDNN_INT4 \
  (DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 5))

// A reference implementation of a large problem takes minutes and compares with nothing.
constexpr double kReferenceLimit = 3e8;

/// oneDNN's OpenMP runtime is whichever the library was linked with; asking for it at run time
/// keeps that choice out of our build.
void set_threads(int threads) {
  using SetThreads = void (*)(int);
  const auto set = reinterpret_cast<SetThreads>(
      reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")));
  if (set == nullptr) throw std::runtime_error("oneDNN was built without OpenMP");
  set(threads);
}

struct Types {
  Type source;
  Type weights;
  Type destination;
};

[[maybe_unused]] int64_t group_of(const Problem& p) {
  return p.group == 0 ? p.k : std::min(p.group, p.k);
}

/// Its weight decompression: bf16 activations on 4-bit weights, for W4A8 too, of which it has only
/// a reference implementation.
Types int4_types([[maybe_unused]] const Problem& p, [[maybe_unused]] Type destination) {
#if QUERN_ONEDNN_INT4
  if (p.act_order || p.zeros == Int4Zeros::kF32 || p.k % group_of(p) != 0) {
    throw std::runtime_error("no counterpart in oneDNN");
  }
  return {Type::bf16, p.zeros == Int4Zeros::kInteger ? Type::u4 : Type::s4, destination};
#else
  throw std::runtime_error("4-bit weights need oneDNN 3.5");
#endif
}

Types types_of(const Problem& p) {
  const Type destination = p.c == DType::kF32 ? Type::f32 : Type::bf16;
  if (p.epilogue.bias || p.epilogue.residual || p.epilogue.activation != Activation::kNone) {
    throw std::runtime_error("compared without epilogue only");
  }
  if (p.op == "bf16_gemm") return {Type::bf16, Type::bf16, destination};
  if (p.op == "bmm" && p.b != BmmOperand::kS8 && p.b != BmmOperand::kE4M3)
    return {Type::bf16, Type::bf16, destination};
  if (p.op == "int8_gemm" && p.activations != Int8Activations::kBF16) {
    return {Type::u8, Type::s8, destination};
  }
  if (p.op == "int4_gemm") return int4_types(p, destination);
  throw std::runtime_error("no counterpart in oneDNN");
}

class Matmul final : public OneDnnProblem {
 public:
  Matmul(const Problem& p, const Types& types, size_t cold_bytes)
      : problem_(p),
        types_(types),
        cold_bytes_(cold_bytes),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    create_primitive();
    make_operands();
    make_weights();
  }

  void run() override {
    arguments_[DNNL_ARG_WEIGHTS] = weights_[static_cast<size_t>(call_++) % weights_.size()];
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

  std::string kernel() const override {
    return fmt::format("{} {}", descriptor_.impl_info_str(),
                       types_.source == Type::u8 ? "u8s8"
                       : int4()                  ? "bf16 on 4 bits"
                                                 : "bf16");
  }

 private:
  void create_primitive() {
    const memory::desc a_desc = rows_of(problem_.k, types_.source),
                       b_desc(weight_dims(), types_.weights, plain() ? stored_tag() : Tag::any),
                       c_desc = rows_of(problem_.n, types_.destination);
    dnnl::primitive_attr attributes;
    // A scale a column, as our weights have. (One for each row of activations is not to be had.)
    if (types_.source == Type::u8) {
      const int per_column = 1 << 1;
#if DNNL_VERSION_MAJOR >= 3
      attributes.set_scales_mask(DNNL_ARG_WEIGHTS, per_column);
#else
      attributes.set_output_scales(per_column,
                                   std::vector<float>(static_cast<size_t>(problem_.n), 0.01f));
#endif
    }
#if QUERN_ONEDNN_INT4
    if (int4()) {
      const int both = 1 << 0 | 1 << 1;
      const memory::dims groups = {group_of(problem_), 1};
      attributes.set_scales(DNNL_ARG_WEIGHTS, both, groups, Type::bf16);
      if (types_.weights == Type::u4) {
        attributes.set_zero_points(DNNL_ARG_WEIGHTS, both, groups, Type::u8);
      }
      attributes.set_fpmath_mode(dnnl::fpmath_mode::bf16, true);
    }
#endif
#if DNNL_VERSION_MAJOR >= 3
    descriptor_ = dnnl::matmul::primitive_desc(engine_, a_desc, b_desc, c_desc, attributes);
#else
    descriptor_ = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_desc, b_desc, c_desc),
                                               attributes, engine_);
#endif
    const std::string name = descriptor_.impl_info_str();
    const double products = static_cast<double>(batch()) * static_cast<double>(problem_.m) *
                            static_cast<double>(problem_.n) * static_cast<double>(problem_.k);
    if (name.find("ref") != std::string::npos && products > kReferenceLimit) {
      throw std::runtime_error("only its reference implementation (" + name + ")");
    }
    primitive_ = dnnl::matmul(descriptor_);
  }

  bool int4() const {
    return problem_.op == "int4_gemm";
  }
  bool batched() const {
    return problem_.op == "bmm";
  }
  int64_t batch() const {
    return batched() ? problem_.batch : 1;
  }
  bool plain() const {
    return problem_.b == BmmOperand::kPlainNK || problem_.b == BmmOperand::kPlainKN;
  }

  /// A or C: rows of `cols`. A batch is dense, matrix by matrix: with the heads of [M, batch,
  /// cols], as ours are, it is up to a tenth slower.
  memory::desc rows_of(int64_t cols, Type type) const {
    if (!batched()) return {{problem_.m, cols}, type, Tag::ab};
    return {{problem_.batch, problem_.m, cols}, type, Tag::abc};
  }
  memory::dims weight_dims() const {
    if (!batched()) return {problem_.k, problem_.n};
    return {problem_.batch, problem_.k, problem_.n};
  }
  /// Weights as they come: ours are [n, k], which is oneDNN's [k, n] with tag ba.
  Tag stored_tag() const {
    if (!batched()) return Tag::ba;
    return problem_.b == BmmOperand::kPlainKN ? Tag::abc : Tag::acb;
  }

  Matrix& own(Matrix matrix) {
    owned_.push_back(std::make_unique<Matrix>(std::move(matrix)));
    return *owned_.back();
  }

  static DType dtype_of(Type type) {
    switch (type) {
      case Type::u8:
        return DType::kU8;
      case Type::s8:
        return DType::kS8;
      case Type::bf16:
        return DType::kBF16;
      default:
        return DType::kF32;
    }
  }

  void make_operands() {
    const Matrix& a = own(filled(problem_.m, batch() * problem_.k, dtype_of(types_.source), 1));
    const Matrix& c = own(Matrix(problem_.m, batch() * problem_.n, dtype_of(types_.destination)));
    arguments_.emplace(DNNL_ARG_SRC, memory(descriptor_.src_desc(), engine_, a.buffer.data()));
    arguments_.emplace(DNNL_ARG_DST, memory(descriptor_.dst_desc(), engine_, c.buffer.data()));
#if DNNL_VERSION_MAJOR >= 3
    if (types_.source == Type::u8) {
      const Matrix& scale = own(Matrix(1, problem_.n, DType::kF32));
      fill_positive(scale, 2, 0.01);
      const memory::desc desc({problem_.n}, Type::f32, Tag::a);
      arguments_.emplace(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
                         memory(desc, engine_, scale.buffer.data()));
    }
#endif
    if (int4()) make_groups();
  }

  /// A scale for each group and column, and zeros of 8.
  void make_groups() {
#if QUERN_ONEDNN_INT4
    const int64_t groups = problem_.k / group_of(problem_);
    const auto add = [&](int argument, const Matrix& m, Type type) {
      const memory::desc desc({m.rows, m.cols}, type, Tag::ab);
      arguments_.emplace(argument | DNNL_ARG_WEIGHTS, memory(desc, engine_, m.buffer.data()));
    };
    const Matrix& scale = own(Matrix(groups, problem_.n, DType::kBF16));
    fill_positive(scale, 2, 0.01);
    add(DNNL_ARG_ATTR_SCALES, scale, Type::bf16);
    if (types_.weights != Type::u4) return;
    const Matrix& zeros = own(Matrix(groups, problem_.n, DType::kU8));
    std::memset(zeros.buffer.data(), 8, zeros.buffer.bytes().size());
    add(DNNL_ARG_ATTR_ZERO_POINTS, zeros, Type::u8);
#endif
  }

  /// Any codes do for timing, in whatever order: not every version reorders 4-bit weights.
  void make_int4_weights() {
    const memory::desc packed = descriptor_.weights_desc();
    const size_t bytes = packed.get_size();
    const Matrix codes = filled(1, static_cast<int64_t>(bytes), DType::kU8, 11);
    const int64_t copies = problem_.cold ? copies_for(bytes, cold_bytes_) : 1;
    for (int64_t i = 0; i < copies; ++i) {
      packed_.push_back(std::make_unique<Buffer>(bytes));
      std::memcpy(packed_.back()->data(), codes.buffer.data(), bytes);
      weights_.emplace_back(packed, engine_, packed_.back()->data());
    }
  }

  void make_weights() {
    if (int4()) return make_int4_weights();
    const memory::desc stored(weight_dims(), types_.weights, stored_tag());
    const memory::desc packed = descriptor_.weights_desc();
    const Matrix w = filled(batch() * problem_.n, problem_.k, dtype_of(types_.weights), 11, 0.02);
    memory from(stored, engine_, w.buffer.data());
    const size_t bytes = packed.get_size();
    const int64_t copies = problem_.cold ? copies_for(bytes, cold_bytes_) : 1;
    for (int64_t i = 0; i < copies; ++i) {
      packed_.push_back(std::make_unique<Buffer>(bytes));
      weights_.emplace_back(packed, engine_, packed_.back()->data());
      if (i == 0) {
        dnnl::reorder(from, weights_[0]).execute(stream_, from, weights_[0]);
        stream_.wait();
      } else {
        std::memcpy(packed_.back()->data(), packed_[0]->data(), bytes);
      }
    }
  }

  const Problem problem_;
  const Types types_;
  const size_t cold_bytes_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc descriptor_;
  dnnl::matmul primitive_;
  std::vector<std::unique_ptr<Matrix>> owned_;
  std::vector<std::unique_ptr<Buffer>> packed_;
  std::vector<memory> weights_;
  std::unordered_map<int, memory> arguments_;
  int64_t call_ = 0;
};

}  // namespace

std::unique_ptr<OneDnnProblem> OneDnnProblem::create(const Problem& problem, size_t cold_bytes) {
  Types types = types_of(problem);
  const bool no_batch = problem.op == "bmm" && problem.batch == 0;
  if (problem.m == 0 || problem.n == 0 || problem.k == 0 || no_batch)
    throw std::runtime_error("empty problem");
  set_threads(std::max(1, static_cast<int>(problem.threads)));
  try {
    return std::make_unique<Matmul>(problem, types, cold_bytes);
  } catch (const dnnl::error&) {
    if (types.source != Type::u8 || types.destination == Type::f32) throw;
    types.destination = Type::f32;  // versions that cannot write bf16 from int8
    return std::make_unique<Matmul>(problem, types, cold_bytes);
  }
}

std::string onednn_name() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

}  // namespace quern::bench

#endif
