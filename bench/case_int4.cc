#include <algorithm>
#include <numeric>

#include "bench/gemm_case.h"
#include "reference/int4_gemm.h"

namespace quern::bench {
namespace {

constexpr int64_t kWord = 8;  // nibbles

int64_t words(int64_t n) {
  return (n + kWord - 1) / kWord;
}

int64_t groups_of(const Problem& p) {
  const int64_t columns = p.group == 0 ? p.k : std::min(p.group, p.k);
  return columns == 0 ? 0 : (p.k + columns - 1) / columns;
}

/// g_idx of a problem in activation order: groups as large as they are without, their columns
/// anywhere. A step that shares no factor with k visits every column.
Matrix scattered_groups(const Problem& p) {
  Matrix m(1, p.act_order ? p.k : 0, DType::kS32);
  auto* g = reinterpret_cast<int32_t*>(m.buffer.data());
  int64_t step = p.k / 3 + 1;
  while (std::gcd(step, p.k) != 1) ++step;
  for (int64_t i = 0; i < m.cols; ++i) {
    const int64_t column = i * step % p.k;
    g[i] = static_cast<int32_t>(p.group == 0 ? 0 : column / p.group);
  }
  return m;
}

struct Int4Traits {
  using Op = Int4Gemm;
  using Args = Int4GemmArgs;
  using ReferenceArgs = reference::Int4GemmArgs;

  static Int4GemmDesc desc_of(const Problem& p) {
    Int4GemmDesc desc;
    desc.n = p.n;
    desc.k = p.k;
    desc.group = p.group == 0 ? -1 : p.group;
    desc.zeros = p.zeros;
    desc.scale = p.scale;
    desc.act_order = p.act_order;
    desc.activations = p.activations == Int8Activations::kBF16 ? Int4Activations::kBF16
                                                               : Int4Activations::kDynamicS8;
    desc.c = p.c;
    desc.epilogue = p.epilogue;
    return desc;
  }

  /// As GPTQ stores them, which is what most files are.
  class Weights {
   public:
    Weights(const Problem& p, int64_t rows, uint64_t seed)
        : zeros_(p.zeros),
          order_(p.act_order),
          codes_(filled(words(p.k), rows, DType::kS32, seed)),
          scale_(groups_of(p), rows, p.scale),
          zero_words_(filled(groups_of(p), words(rows), DType::kS32, seed + 2)),
          zero_values_(filled(groups_of(p), rows, DType::kF32, seed + 3, 15)),
          g_idx_(scattered_groups(p)),
          cut_(0, 0, DType::kS32) {
      fill_positive(scale_, seed + 1, scale_for_depth(p.k) / 4);
    }
    Int4Weights view() const {
      Int4Weights w;
      w.codes = codes_.view();
      w.scale = scale_.view();
      if (zeros_ == Int4Zeros::kInteger) w.zero = zero_words_.view();
      if (zeros_ == Int4Zeros::kF32) w.zero = zero_values_.view();
      if (order_) w.g_idx = g_idx_.vector();
      return w;
    }
    Int4Weights columns(const Block& b) const {
      const auto part = [&](const MatrixView& m) { return part_of(m, 0, m.rows, b.col, b.cols); };
      Int4Weights w = view();
      w.codes = part(w.codes);
      w.scale = part(w.scale);
      if (zeros_ == Int4Zeros::kF32) w.zero = part(w.zero);
      if (zeros_ == Int4Zeros::kInteger) w.zero = cut_zeros(b);
      return w;
    }

   private:
    /// Columns of a block begin anywhere, words of zeros at multiples of eight.
    MatrixView cut_zeros(const Block& b) const {
      cut_ = Matrix(zero_words_.rows, words(b.cols), DType::kS32);
      const auto* from = reinterpret_cast<const uint32_t*>(zero_words_.buffer.data());
      auto* to = reinterpret_cast<uint32_t*>(cut_.buffer.data());
      for (int64_t g = 0; g < cut_.rows; ++g) {
        for (int64_t j = 0; j < b.cols; ++j) {
          const int64_t col = b.col + j;
          const uint32_t word = from[g * zero_words_.cols + col / kWord];
          const uint32_t zero = word >> (4 * (col % kWord)) & 15u;
          to[g * cut_.cols + j / kWord] |= zero << (4 * (j % kWord));
        }
      }
      return cut_.view();
    }

    Int4Zeros zeros_;
    bool order_;
    Matrix codes_;
    Matrix scale_;
    Matrix zero_words_;
    Matrix zero_values_;
    Matrix g_idx_;
    mutable Matrix cut_;  ///< lives until the next block is cut
  };

  class Extra {
   public:
    explicit Extra(const Problem&) {}
    void put(Args*) const {}
    void put(const Block&, ReferenceArgs*) const {}
  };

  static reference::Exact exact(const Int4GemmDesc& desc, const ReferenceArgs& args) {
    return reference::int4_gemm_exact(desc, args);
  }
  static Peak peak(const Problem& p) {
    return p.activations == Int8Activations::kBF16 ? Peak::kBf16 : Peak::kInt8;
  }
};

}  // namespace

std::unique_ptr<OpCase> make_int4_case(const Problem& problem, const CaseEnv& env, Int4Call call) {
  return std::make_unique<GemmCase<Int4Traits>>(problem, env, std::move(call));
}

std::string explain_int4(const Problem& problem, const Context& ctx) {
  return created(Int4Gemm::create(ctx, Int4Traits::desc_of(problem))).explain();
}

}  // namespace quern::bench
