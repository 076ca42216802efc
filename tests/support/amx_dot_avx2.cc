// Compiled for AVX2 function by function, because the program runs on CPUs without it too. The
// names begin with avx2_: tests/project/isa_flags_test.sh knows them by that.
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

#include "tests/support/amx_dot.h"

#define QUERN_AVX2 __attribute__((target("avx2,fma,f16c")))
#define QUERN_AVX2_INLINE QUERN_AVX2 __attribute__((always_inline)) inline

namespace quern::amx_emu {
namespace {

/// A row of 16 dwords.
struct Row {
  __m256i low, high;
};

QUERN_AVX2_INLINE Row avx2_load(const uint8_t* row) {
  const auto* p = reinterpret_cast<const __m256i*>(row);
  return {_mm256_load_si256(p), _mm256_load_si256(p + 1)};
}

QUERN_AVX2_INLINE __m256i avx2_broadcast(const uint8_t* p) {
  int word;
  std::memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

/// Bytes 0 and 2 of each dword as 16-bit numbers; bytes 1 and 3.
template <bool kSigned>
QUERN_AVX2_INLINE __m256i avx2_even_bytes(__m256i x) {
  return kSigned ? _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8)
                 : _mm256_and_si256(x, _mm256_set1_epi16(0xff));
}
template <bool kSigned>
QUERN_AVX2_INLINE __m256i avx2_odd_bytes(__m256i x) {
  return kSigned ? _mm256_srai_epi16(x, 8) : _mm256_srli_epi16(x, 8);
}

/// A row of A broadcast against a row of B. vpmaddwd adds two products of at most 255 * 255: no
/// overflow, unlike vpmaddubsw, which saturates.
template <bool kSignedB>
QUERN_AVX2_INLINE __m256i avx2_add_products(__m256i sum, __m256i a_even, __m256i a_odd, __m256i b) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a_even, avx2_even_bytes<kSignedB>(b)));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a_odd, avx2_odd_bytes<kSignedB>(b)));
}

template <bool kSignedA, bool kSignedB>
QUERN_AVX2 void avx2_int8(const DotOperands& o) {
  for (int m = 0; m < o.m; ++m) {
    Row sum = avx2_load(o.c->row[m]);
    for (int k = 0; k < o.k; ++k) {
      const __m256i a = avx2_broadcast(&o.a->row[m][4 * k]);
      const __m256i a_even = avx2_even_bytes<kSignedA>(a);
      const __m256i a_odd = avx2_odd_bytes<kSignedA>(a);
      const Row b = avx2_load(o.b->row[k]);
      sum.low = avx2_add_products<kSignedB>(sum.low, a_even, a_odd, b.low);
      sum.high = avx2_add_products<kSignedB>(sum.high, a_even, a_odd, b.high);
    }
    auto* c = reinterpret_cast<__m256i*>(o.c->row[m]);
    _mm256_store_si256(c, sum.low);
    _mm256_store_si256(c + 1, sum.high);
  }
}

/// Eight dwords of two 16-bit floats each as fp32: the low (even) halves, the high (odd) ones.
struct Halves {
  __m256 even, odd;
};

struct Bf16 {
  static QUERN_AVX2_INLINE Halves avx2_split(__m256i x) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(~0xffff)))};
  }
};

struct Fp16 {
  /// vcvtph2ps does not look at DAZ. It takes eight packed halves: gather the even ones, then the
  /// odd ones, of both lanes.
  static QUERN_AVX2_INLINE Halves avx2_split(__m256i x) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i grouped = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, order), 0xd8);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(grouped)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(grouped, 1))};
  }
};

/// Half a row of C: eight columns of B from `column`. Denormals are handled by MXCSR.
template <typename Type>
QUERN_AVX2_INLINE void avx2_float_half(const DotOperands& o, int m, int column) {
  __m256 even = _mm256_setzero_ps();
  __m256 odd = _mm256_setzero_ps();
  for (int k = 0; k < o.k; ++k) {
    const Halves a = Type::avx2_split(avx2_broadcast(&o.a->row[m][4 * k]));
    const auto* row = reinterpret_cast<const __m256i*>(&o.b->row[k][4 * column]);
    const Halves b = Type::avx2_split(_mm256_load_si256(row));
    even = _mm256_fmadd_ps(a.even, b.even, even);
    odd = _mm256_fmadd_ps(a.odd, b.odd, odd);
  }
  auto* c = reinterpret_cast<float*>(&o.c->row[m][4 * column]);
  _mm256_store_ps(c, _mm256_add_ps(_mm256_load_ps(c), _mm256_add_ps(even, odd)));
}

template <typename Type>
QUERN_AVX2 __attribute__((noinline)) void avx2_float(const DotOperands& o) {
  for (int m = 0; m < o.m; ++m) {
    avx2_float_half<Type>(o, m, 0);
    avx2_float_half<Type>(o, m, 8);
  }
}

/// Clang 14 cannot ask for F16C this way. It is older than AVX2, but hypervisors may mask it.
bool ask_cpu() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

// Asked once, because CPUID is slow in virtual machines; false, which is right everywhere, before
// this file's initialisers have run.
const bool kHasAvx2 = ask_cpu();

}  // namespace

bool has_avx2() {
  return kHasAvx2;
}

void dot_avx2(Op op, const DotOperands& operands) {
  switch (op) {
    case Op::kTdpbssd:
      return avx2_int8<true, true>(operands);
    case Op::kTdpbsud:
      return avx2_int8<true, false>(operands);
    case Op::kTdpbusd:
      return avx2_int8<false, true>(operands);
    case Op::kTdpbuud:
      return avx2_int8<false, false>(operands);
    default:
      break;
  }
  const MxcsrGuard guard(kMxcsrFlushToZero);
  if (op == Op::kTdpbf16ps) {
    avx2_float<Bf16>(operands);
  } else {
    avx2_float<Fp16>(operands);
  }
}

}  // namespace quern::amx_emu
