#include "bench/gemm_case.h"
#include "reference/bf16_gemm.h"

namespace quern::bench {
namespace {

struct Bf16Traits {
  using Op = Bf16Gemm;
  using Args = Bf16GemmArgs;
  using ReferenceArgs = reference::Bf16GemmArgs;

  static Bf16GemmDesc desc_of(const Problem& p) {
    Bf16GemmDesc desc;
    desc.n = p.n;
    desc.k = p.k;
    desc.c = p.c;
    desc.epilogue = p.epilogue;
    return desc;
  }

  class Weights {
   public:
    Weights(const Problem& p, int64_t rows, uint64_t seed)
        : values_(filled(rows, p.k, DType::kBF16, seed, scale_for_depth(p.k))) {}
    MatrixView view() const { return values_.view(); }
    MatrixView columns(const Block& b) const {
      return part_of(values_.view(), b.col, b.cols, 0, values_.cols);
    }

   private:
    Matrix values_;
  };

  struct Extra {
    explicit Extra(const Problem&) {}
    void put(Args*) const {}
    void put(const Block&, ReferenceArgs*) const {}
  };

  static reference::Exact exact(const Bf16GemmDesc& desc, const ReferenceArgs& args) {
    return reference::bf16_gemm_exact(desc, args);
  }
  static Peak peak(const Problem&) { return Peak::kBf16; }
};

}  // namespace

std::unique_ptr<OpCase> make_bf16_case(const Problem& problem, const CaseEnv& env, Bf16Call call) {
  return std::make_unique<GemmCase<Bf16Traits>>(problem, env, std::move(call));
}

std::string explain_bf16(const Problem& problem, const Context& ctx) {
  return created(Bf16Gemm::create(ctx, Bf16Traits::desc_of(problem))).explain();
}

}  // namespace quern::bench
