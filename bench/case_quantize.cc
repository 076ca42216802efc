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

QuantizeRowsDesc desc_of(const Problem& p) {
  return {p.k, p.a, p.group};
}

class QuantizeCase final : public OpCase {
 public:
  QuantizeCase(const Problem& p, const CaseEnv& env, QuantizeCall call)
      : problem_(p),
        memory_(env.memory),
        plan_(created(QuantizeRows::create(env.context, desc_of(p)))),
        call_(std::move(call)),
        inputs_(make_copies(
            p.cold, memory_.cold_bytes, [&p] { return filled(p.m, p.k, p.a, 1); },
            [](const Matrix& a) { return a.buffer.bytes().size(); })),
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
  std::string explain() const override { return plan_.explain(); }
  int64_t copies() const override { return inputs_.size(); }

  Work work() const override {
    Work work;
    const double elements = static_cast<double>(problem_.m) * static_cast<double>(problem_.k);
    work.bytes = elements * static_cast<double>(size_of(problem_.a) + 1);
    work.from_memory = problem_.cold || work.bytes > static_cast<double>(memory_.cache_bytes);
    return work;
  }

 private:
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
  const MemoryPlan memory_;
  const QuantizeRows plan_;
  const QuantizeCall call_;
  const ColdRotation<Matrix> inputs_;
  const Matrix q_;
  const Matrix scale_;
  const Matrix sums_;
};

}  // namespace

std::unique_ptr<OpCase> make_quantize_case(const Problem& problem, const CaseEnv& env,
                                           QuantizeCall call) {
  return std::make_unique<QuantizeCase>(problem, env, std::move(call));
}

std::string explain_quantize(const Problem& problem, const Context& ctx) {
  return created(QuantizeRows::create(ctx, desc_of(problem))).explain();
}

}  // namespace quern::bench
