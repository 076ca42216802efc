#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/amx_selftest.h"
#include "bench/plan_text.h"
#include "quern/bf16_gemm.h"
#include "quern/int8_gemm.h"
#include "tests/support/rng.h"

namespace quern::bench {
namespace {

struct Shape {
  int64_t m, n, k;
};
std::string text(const Shape& s) {
  return "m:" + std::to_string(s.m) + "/n:" + std::to_string(s.n) + "/k:" + std::to_string(s.k);
}

/// Operands of both ops, row-major.
struct Data {
  std::vector<bfloat16> a, w;
  std::vector<int8_t> codes;
  std::vector<float> scale;

  /// `integers`: small ones, whose sums are exact in any order; else random bf16 around one.
  Data(const Shape& s, bool integers, uint64_t seed) {
    test::Rng rng(seed);
    const auto number = [&] {
      return bfloat16::from_float(integers ? static_cast<float>(rng.in(-8, 8)) : rng.unit());
    };
    for (int64_t i = 0; i < s.m * s.k; ++i) a.push_back(number());
    for (int64_t i = 0; i < s.n * s.k; ++i) w.push_back(number());
    for (int64_t i = 0; i < s.n * s.k; ++i) codes.push_back(static_cast<int8_t>(rng.next()));
    for (int64_t i = 0; i < s.n; ++i) scale.push_back(0.001f * static_cast<float>(rng.in(1, 99)));
  }
};

/// A plan with packed weights and room for m rows.
template <typename Op, typename Args>
class Runner {
 public:
  Runner(const Context& ctx, const Shape& s, const Data& data)
      : shape_(s), data_(data), c_(static_cast<size_t>(s.m * s.n)) {
    typename std::decay_t<decltype(op_->desc())> desc;
    desc.n = s.n;
    desc.k = s.k;
    desc.c = DType::kF32;
    auto op = Op::create(ctx, desc);
    if (!op.ok()) return;
    op_ = std::make_shared<Op>(*op);
    auto packed = pack();
    if (!packed.ok()) return;
    weights_ = std::move(*packed);
    scratch_.resize(op_->scratch_bytes(s.m));
    ok_ = run();
  }
  bool ok() const { return ok_; }
  /// The level of the kernel that runs these rows, which for few rows may be below the plan's.
  IsaLevel level() const {
    return op_ == nullptr ? IsaLevel::kNone
                          : level_of_kernel(kernel_name(op_->explain(), shape_.m));
  }
  bool run() {
    Args args;
    args.a = matrix_view(data_.a.data(), shape_.m, shape_.k);
    args.weights = &weights_;
    args.c = mutable_matrix_view(c_.data(), shape_.m, shape_.n);
    return op_->run(args, {scratch_.data(), scratch_.size()}).ok();
  }
  const std::vector<float>& c() const { return c_; }

 private:
  Result<PackedWeights> pack() const {
    if constexpr (std::is_same_v<Op, Int8Gemm>) {
      return op_->pack({matrix_view(data_.codes.data(), shape_.n, shape_.k),
                        vector_view(data_.scale.data(), shape_.n)});
    } else {
      return op_->pack(matrix_view(data_.w.data(), shape_.n, shape_.k));
    }
  }

  Shape shape_;
  const Data& data_;
  std::vector<float> c_;
  std::shared_ptr<Op> op_;
  PackedWeights weights_;
  std::vector<std::byte> scratch_;
  bool ok_ = false;
};
using Int8Runner = Runner<Int8Gemm, Int8GemmArgs>;
using Bf16Runner = Runner<Bf16Gemm, Bf16GemmArgs>;

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
}

std::vector<float> exact_sums(const Shape& s, const Data& data) {
  std::vector<float> c;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        sum += double{data.a[static_cast<size_t>(i * s.k + k)].to_float()} *
               double{data.w[static_cast<size_t>(j * s.k + k)].to_float()};
      }
      c.push_back(static_cast<float>(sum));
    }
  }
  return c;
}

/// The order in which tdpbf16ps adds, by the manual: in each tile of 32 depths even and odd ones
/// apart, both added to C last.
std::vector<float> manual_sums(const Shape& s, const Data& data) {
  std::vector<float> c;
  const auto at = [&](const std::vector<bfloat16>& x, int64_t row, int64_t k) {
    return k < s.k ? x[static_cast<size_t>(row * s.k + k)].to_float() : 0.0f;
  };
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      float acc = 0;
      for (int64_t tile = 0; tile < s.k; tile += 32) {
        float sum[2] = {0, 0};
        for (int64_t k = tile; k < tile + 32; ++k) {
          sum[k % 2] = std::fmaf(at(data.a, i, k), at(data.w, j, k), sum[k % 2]);
        }
        const float both = sum[0] + sum[1];
        acc = acc + both;
      }
      c.push_back(acc);
    }
  }
  return c;
}

SelftestResult result(const std::string& name, const std::vector<float>& c, Verdict verdict) {
  Checksum sum;
  if (!c.empty()) sum.add(c.data(), c.size() * sizeof(float));
  return {name, sum.value(), verdict};
}

/// Microseconds, the median of an odd number of runs.
template <typename R>
double median_us(R& runner) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    const auto start = Clock::now();
    runner.run();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 7, times.end());
  return times[7];
}

}  // namespace

void run_kernel_cases(const Context& amx, const Context& avx512, const SelftestSink& sink) {
  uint64_t seed = 0;
  for (const int64_t m : {1, 5, 6, 16, 17, 33, 50}) {
    for (const int64_t n : {1, 16, 33, 70}) {
      for (const int64_t k : {1, 31, 33, 64, 130, 300}) {
        const Shape s{m, n, k};
        const Data integers(s, true, ++seed), random(s, false, seed);
        const Int8Runner int8(amx, s, random), int8_below(avx512, s, random);
        const bool int8_ok = int8.ok() && int8_below.ok() && same_bits(int8.c(), int8_below.c());
        // A few rows run on avx512 in both plans: that it equals itself would say nothing of AMX.
        if (!int8.ok() || int8.level() == IsaLevel::kAmx) {
          sink(result("int8_gemm/" + text(s), int8.c(), int8_ok ? Verdict::kOk : Verdict::kWrong));
        }
        const Bf16Runner exact(amx, s, integers);
        const bool exact_ok = exact.ok() && same_bits(exact.c(), exact_sums(s, integers));
        sink(result("bf16_gemm/integers/" + text(s), exact.c(),
                    exact_ok ? Verdict::kOk : Verdict::kWrong));
        const Bf16Runner bf16(amx, s, random);
        const bool as_manual = bf16.ok() && same_bits(bf16.c(), manual_sums(s, random));
        sink(
            result("bf16_gemm/" + text(s), bf16.c(), as_manual ? Verdict::kOk : Verdict::kDiffers));
      }
    }
  }
}

void print_times(const Context& amx, const Context& avx512) {
  std::printf("\none thread, 2048 x 4096, weights and activations warm, median of 15\n");
  std::printf(
      "us (GOP/s), and the level that ran: a plan of level amx may leave few rows to avx512\n");
  std::printf("%-6s %22s %22s %22s %22s\n", "M", "int8, level amx", "int8, level avx512",
              "bf16, level amx", "bf16, level avx512");
  for (const int64_t m : {1, 4, 16, 32, 64, 256, 1024}) {
    const Shape s{m, 2048, 4096};
    const Data data(s, false, 1);
    std::printf("%-6d", static_cast<int>(m));
    const auto print = [&](auto&& runner) {
      const double us = runner.ok() ? median_us(runner) : 0;
      const double gops = us > 0 ? 2e-3 * static_cast<double>(s.m * s.n * s.k) / us : 0;
      std::printf(" %7.0f (%5.0f) %6s", us, gops, to_string(runner.level()));
    };
    print(Int8Runner(amx, s, data));
    print(Int8Runner(avx512, s, data));
    print(Bf16Runner(amx, s, data));
    print(Bf16Runner(avx512, s, data));
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace quern::bench
