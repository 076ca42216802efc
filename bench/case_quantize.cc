#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "bench/check.h"
#include "bench/cold_weights.h"
#include "bench/op_case.h"
#include "bench/operands.h"
#include "reference/quantize_rows.h"

namespace quern::bench {
namespace {

constexpr int64_t kCheckedElements = int64_t{1} << 20;

QuantizeRows plan_of(const Problem& p, const Context& ctx) {
  Result<QuantizeRows> plan = QuantizeRows::create(ctx, {p.k, p.a, p.group});
  if (!plan.ok()) throw CaseError(plan.status().message());
  return *plan;
}

class QuantizeCase final : public OpCase {
 public:
  QuantizeCase(const Problem& p, const Context& ctx, QuantizeCall call)
      : problem_(p),
        plan_(plan_of(p, ctx)),
        call_(std::move(call)),
        inputs_(input_copies()),
        q_(p.m, p.k, DType::kS8),
        scale_(p.m, 1, DType::kF32),
        sums_(p.m, plan_.groups(), DType::kS32) {}

  Status run(int64_t call) override {
    QuantizeRowsArgs args;
    args.a = inputs_.at(call).view();
    args.q = q_.mutable_view();
    args.scale = {scale_.buffer.data(), DType::kF32, problem_.m};
    args.sums = sums_.mutable_view();
    return call_ ? call_(plan_, args) : plan_.run(args);
  }

  CheckResult check() const override {
    // Whole rows, the last ones too: rows are what threads get.
    CheckResult result;
    result.total = problem_.m * problem_.k;
    const int64_t rows =
        std::min(problem_.m, kCheckedElements / std::max<int64_t>(problem_.k, 1) + 1);
    for (int64_t i = 0; i < rows && result.ok; ++i) {
      check_row(rows == 1 ? 0 : i * (problem_.m - 1) / (rows - 1), &result);
    }
    return result;
  }

  std::span<const std::byte> output() const override { return q_.buffer.bytes(); }
  std::string kernel() const override { return kernel_name(plan_.explain(), problem_.m); }
  int64_t copies() const override { return inputs_.size(); }

  Work work() const override {
    Work work;
    const double elements = static_cast<double>(problem_.m) * static_cast<double>(problem_.k);
    work.bytes = elements * static_cast<double>(size_of(problem_.a) + 1);
    work.from_memory = comes_from_memory(work.bytes, problem_.cold);
    return work;
  }

 private:
  ColdRotation<Matrix> input_copies() const {
    std::vector<Matrix> copies;
    const size_t bytes = static_cast<size_t>(problem_.m * problem_.k) * size_of(problem_.a);
    const int64_t count = copies_for(bytes, problem_.cold);
    for (int64_t i = 0; i < count; ++i) {
      copies.push_back(filled(problem_.m, problem_.k, problem_.a, 1));
    }
    return ColdRotation<Matrix>(std::move(copies));
  }

  void check_row(int64_t row, CheckResult* result) const {
    const reference::QuantizedRow expected = reference::quantize_row(inputs_.at(0).view(), row);
    const int8_t* q = reinterpret_cast<const int8_t*>(q_.buffer.data()) + row * problem_.k;
    const float scale = reinterpret_cast<const float*>(scale_.buffer.data())[row];
    const int32_t* sums =
        reinterpret_cast<const int32_t*>(sums_.buffer.data()) + row * plan_.groups();
    result->compared += problem_.k;
    const int64_t group = problem_.group > 0 ? problem_.group : std::max<int64_t>(problem_.k, 1);
    std::vector<int32_t> expected_sums(static_cast<size_t>(plan_.groups()));
    for (int64_t i = 0; i < problem_.k; ++i) {
      expected_sums[static_cast<size_t>(i / group)] += expected.q[static_cast<size_t>(i)];
      if (q[i] != expected.q[static_cast<size_t>(i)]) {
        fail(fmt::format("q[{}, {}] = {}, reference {}", row, i, q[i],
                         expected.q[static_cast<size_t>(i)]),
             result);
      }
    }
    if (std::memcmp(&scale, &expected.scale, sizeof scale) != 0) {
      fail(fmt::format("scale[{}] = {}, reference {}", row, scale, expected.scale), result);
    }
    for (size_t g = 0; g < expected_sums.size(); ++g) {
      if (sums[g] != expected_sums[g]) {
        fail(fmt::format("sums[{}, {}] = {}, reference {}", row, g, sums[g], expected_sums[g]),
             result);
      }
    }
  }

  static void fail(const std::string& detail, CheckResult* result) {
    if (result->ok) result->detail = detail;
    result->ok = false;
  }

  const Problem problem_;
  const QuantizeRows plan_;
  const QuantizeCall call_;
  const ColdRotation<Matrix> inputs_;
  const Matrix q_;
  const Matrix scale_;
  const Matrix sums_;
};

}  // namespace

std::unique_ptr<OpCase> make_quantize_case(const Problem& problem, const Context& ctx,
                                           QuantizeCall call) {
  return std::make_unique<QuantizeCase>(problem, ctx, std::move(call));
}

}  // namespace quern::bench
