#include <cstddef>
#include <span>
#include <utility>

#include "bench/gemm_case.h"
#include "reference/fp4_gemm.h"

namespace quern::bench {
namespace {

int64_t block_of(const Problem& p) {
  return p.fp4 == Fp4Format::kNvfp4 ? 16 : 32;
}

/// Scales of [2^-3, 2^2) as e4m3, or of 2^-3 to 2^4 as e8m0.
Matrix block_scales(const Problem& p, int64_t rows, uint64_t seed) {
  const int64_t blocks = (p.k + block_of(p) - 1) / block_of(p);
  Matrix m = filled(rows, blocks, DType::kU8, seed);
  const bool nvfp4 = p.fp4 == Fp4Format::kNvfp4;
  m.dtype = nvfp4 ? DType::kE4M3 : DType::kE8M0;
  for (std::byte& b : std::span(m.buffer.data(), static_cast<size_t>(rows * blocks))) {
    const unsigned any = std::to_integer<unsigned>(b);
    b = static_cast<std::byte>(nvfp4 ? 0x20 + any % 40 : 124 + any % 8);
  }
  return m;
}

struct Fp4Traits {
  using Op = Fp4Gemm;
  using Args = Fp4GemmArgs;
  using ReferenceArgs = reference::Fp4GemmArgs;

  static Fp4GemmDesc desc_of(const Problem& p) {
    Fp4GemmDesc desc;
    desc.n = p.n;
    desc.k = p.k;
    desc.format = p.fp4;
    desc.c = p.c;
    desc.epilogue = p.epilogue;
    return desc;
  }

  class Weights {
   public:
    Weights(const Problem& p, int64_t rows, uint64_t seed)
        : codes_(filled(rows, (p.k + 1) / 2, DType::kU8, seed)),
          scale_(block_scales(p, rows, seed + 1)),
          global_(p.fp4 == Fp4Format::kNvfp4 ? 1 : 0, 1, DType::kF32) {
      fill_positive(global_, seed + 2, scale_for_depth(p.k) / 4);
    }
    Fp4Weights view() const {
      Fp4Weights w;
      w.codes = codes_.view();
      w.scale = scale_.view();
      if (global_.rows != 0) w.global = global_.vector();
      return w;
    }
    Fp4Weights columns(const Block& b) const {
      Fp4Weights w = view();
      w.codes = part_of(w.codes, b.col, b.cols, 0, codes_.cols);
      w.scale = part_of(w.scale, b.col, b.cols, 0, scale_.cols);
      return w;
    }

   private:
    Matrix codes_;
    Matrix scale_;
    Matrix global_;
  };

  class Extra {
   public:
    explicit Extra(const Problem&) {}
    void put(Args*) const {}
    void put(const Block&, ReferenceArgs*) const {}
  };

  static reference::Exact exact(const Fp4GemmDesc& desc, const ReferenceArgs& args) {
    return reference::fp4_gemm_exact(desc, args);
  }
  static Peak peak(const Problem&) { return Peak::kBf16; }
};

}  // namespace

std::unique_ptr<OpCase> make_fp4_case(const Problem& problem, const CaseEnv& env, Fp4Call call) {
  return std::make_unique<GemmCase<Fp4Traits>>(problem, env, std::move(call));
}

std::string explain_fp4(const Problem& problem, const Context& ctx) {
  return created(Fp4Gemm::create(ctx, Fp4Traits::desc_of(problem))).explain();
}

}  // namespace quern::bench
