// A small f32 matrix product for the layers whose operands live in L1 and L2 (64-token chunks); the
// projections of the model are the ops' business. Compiled once per target.
#if defined(QUERN_MODEL_SMOKE_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUERN_MODEL_SMOKE_MATMUL_INL_H_
#undef QUERN_MODEL_SMOKE_MATMUL_INL_H_
#else
#define QUERN_MODEL_SMOKE_MATMUL_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "model_smoke/layers/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quern::smoke {
namespace HWY_NAMESPACE {

struct MatmulSize {
  int64_t m, n, k;
};

template <int R, int NV>
HWY_INLINE void matmul_block(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                             float* c, int64_t ldc, bool accumulate) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF32 acc[R][NV];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < NV; ++n) {
      acc[r][n] = accumulate ? hn::LoadU(d, c + r * ldc + n * lanes) : hn::Zero(d);
    }
  }
  for (int64_t x = 0; x < k; ++x) {
    VF32 column[NV];
    for (int n = 0; n < NV; ++n) column[n] = hn::LoadU(d, b + x * ldb + n * lanes);
    for (int r = 0; r < R; ++r) {
      const auto ar = hn::Set(d, a[r * lda + x]);
      for (int n = 0; n < NV; ++n) acc[r][n] = hn::MulAdd(ar, column[n], acc[r][n]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < NV; ++n) hn::StoreU(acc[r][n], d, c + r * ldc + n * lanes);
  }
}

template <int R>
HWY_INLINE void matmul_rows(int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                            int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    matmul_block<R, 2>(k, a, lda, b + j, ldb, c + j, ldc, accumulate);
  }
  for (; j < n; j += lanes) matmul_block<R, 1>(k, a, lda, b + j, ldb, c + j, ldc, accumulate);
}

/// c [m, n] = a [m, k] b [k, n] (+ c). n is a multiple of 16. An element's sum runs over k in
/// order, whatever m is.
HWY_INLINE void matmul(MatmulSize size, const float* a, int64_t lda, const float* b, int64_t ldb,
                       float* c, int64_t ldc, bool accumulate) {
  int64_t i = 0;
  for (; i + 4 <= size.m; i += 4) {
    matmul_rows<4>(size.n, size.k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
  }
  for (; i < size.m; ++i) {
    matmul_rows<1>(size.n, size.k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, accumulate);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quern::smoke
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
