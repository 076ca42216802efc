#include "bench/gemm_case.h"
#include "reference/int8_gemm.h"

namespace quern::bench {
namespace {

constexpr double kScale = 0.01;  // of weights and of s8 activations

Matrix filled_scale(int64_t count, uint64_t seed) {
  Matrix m(1, count, DType::kF32);
  fill_positive(m, seed, kScale);
  return m;
}

struct Int8Traits {
  using Op = Int8Gemm;
  using Args = Int8GemmArgs;
  using ReferenceArgs = reference::Int8GemmArgs;

  static Int8GemmDesc desc_of(const Problem& p) {
    Int8GemmDesc desc;
    desc.n = p.n;
    desc.k = p.k;
    desc.activations = p.activations;
    desc.a = p.a;
    desc.c = p.c;
    desc.epilogue = p.epilogue;
    return desc;
  }

  class Weights {
   public:
    Weights(const Problem& p, int64_t rows, uint64_t seed)
        : codes_(filled(rows, p.k, DType::kS8, seed)), scale_(filled_scale(rows, seed + 1)) {}
    Int8Weights view() const { return {codes_.view(), scale_.vector()}; }
    Int8Weights columns(const Block& b) const {
      return {part_of(codes_.view(), b.col, b.cols, 0, codes_.cols),
              part_of(scale_.vector(), b.col, b.cols)};
    }

   private:
    Matrix codes_;
    Matrix scale_;
  };

  /// The scales of activations that come quantized.
  class Extra {
   public:
    explicit Extra(const Problem& p)
        : used_(p.activations == Int8Activations::kS8), scale_(filled_scale(p.m, 2)) {}
    void put(Args* args) const {
      if (used_) args->a_scale = scale_.vector();
    }
    void put(const Block& b, ReferenceArgs* args) const {
      if (used_) args->a_scale = part_of(scale_.vector(), b.row, b.rows);
    }

   private:
    bool used_;
    Matrix scale_;
  };

  static reference::Exact exact(const Int8GemmDesc& desc, const ReferenceArgs& args) {
    return reference::int8_gemm_exact(desc, args);
  }
  static Peak peak(const Problem& p) {
    return p.activations == Int8Activations::kBF16 ? Peak::kBf16 : Peak::kInt8;
  }
};

}  // namespace

std::unique_ptr<OpCase> make_int8_case(const Problem& problem, const CaseEnv& env, Int8Call call) {
  return std::make_unique<GemmCase<Int8Traits>>(problem, env, std::move(call));
}

std::string explain_int8(const Problem& problem, const Context& ctx) {
  return created(Int8Gemm::create(ctx, Int8Traits::desc_of(problem))).explain();
}

}  // namespace quern::bench
