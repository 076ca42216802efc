#include <algorithm>
#include <utility>

#include "bench/gemm_case.h"
#include "reference/fp8_gemm.h"

namespace quern::bench {
namespace {

int64_t blocks_of(int64_t size, int64_t block) {
  if (size == 0) return 0;
  return block == 0 ? 1 : (size + block - 1) / block;
}

struct Fp8Traits {
  using Op = Fp8Gemm;
  using Args = Fp8GemmArgs;
  using ReferenceArgs = reference::Fp8GemmArgs;

  static Fp8GemmDesc desc_of(const Problem& p) {
    Fp8GemmDesc desc;
    desc.n = p.n;
    desc.k = p.k;
    desc.weights = p.weights;
    desc.block_n = p.block_n == 0 ? -1 : p.block_n;
    desc.block_k = p.block_k == 0 ? -1 : p.block_k;
    desc.c = p.c;
    desc.epilogue = p.epilogue;
    return desc;
  }

  class Weights {
   public:
    Weights(const Problem& p, int64_t rows, uint64_t seed)
        : block_n_(p.block_n == 0 ? std::max<int64_t>(rows, 1) : p.block_n),
          codes_(finite_codes(rows, p.k, p.weights, seed)),
          scale_(blocks_of(rows, p.block_n), blocks_of(p.k, p.block_k), DType::kF32),
          cut_(0, 0, DType::kF32) {
      // Codes of any bits are mostly of the order of one, the largest hundreds (e5m2: thousands).
      fill_positive(scale_, seed + 1, scale_for_depth(p.k) / 64);
    }
    Fp8Weights view() const { return {codes_.view(), scale_.view()}; }
    /// With a row of scales for each column: parts begin in the middle of blocks.
    Fp8Weights columns(const Block& b) const {
      cut_ = Matrix(b.cols, scale_.cols, DType::kF32);
      const auto* from = reinterpret_cast<const float*>(scale_.buffer.data());
      auto* to = reinterpret_cast<float*>(cut_.buffer.data());
      for (int64_t j = 0; j < b.cols; ++j) {
        std::copy_n(from + (b.col + j) / block_n_ * scale_.cols, scale_.cols, to + j * scale_.cols);
      }
      return {part_of(codes_.view(), b.col, b.cols, 0, codes_.cols), cut_.view()};
    }

   private:
    int64_t block_n_;
    Matrix codes_;
    Matrix scale_;
    mutable Matrix cut_;  ///< lives until the next part is cut
  };

  class Extra {
   public:
    explicit Extra(const Problem&) {}
    void put(Args*) const {}
    void put(const Block&, ReferenceArgs*) const {}
  };

  static reference::Exact exact(const Fp8GemmDesc& desc, const ReferenceArgs& args) {
    Fp8GemmDesc by_column = desc;
    by_column.block_n = 1;
    return reference::fp8_gemm_exact(by_column, args);
  }
  static Peak peak(const Problem&) { return Peak::kBf16; }
};

}  // namespace

std::unique_ptr<OpCase> make_fp8_case(const Problem& problem, const CaseEnv& env, Fp8Call call) {
  return std::make_unique<GemmCase<Fp8Traits>>(problem, env, std::move(call));
}

std::string explain_fp8(const Problem& problem, const Context& ctx) {
  return created(Fp8Gemm::create(ctx, Fp8Traits::desc_of(problem))).explain();
}

}  // namespace quern::bench
