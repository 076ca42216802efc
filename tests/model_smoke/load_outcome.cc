#include "tests/model_smoke/load_outcome.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "model_smoke/compare_run.h"
#include "model_smoke/input_error.h"
#include "model_smoke/linear_ops.h"
#include "model_smoke/model_ops.h"
#include "model_smoke/session.h"
#include "model_smoke/weights.h"

namespace quern::smoke::test {

std::vector<float> logits_of(const TestModel& model, const Mode& run) {
  const TempDir dir;
  model.write(dir);
  return logits_of(dir.path(), run);
}

std::string outcome(const TestModel& model) {
  try {
    (void)logits_of(model, {"reference", "f32"});
    return "loaded";
  } catch (const InputError& e) {
    return e.what();
  }
}

void expect_says(const std::string& text, const std::vector<std::string>& parts,
                 const std::string& what) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << what << ": no \"" << part << "\" in: " << text;
  }
}

std::vector<Mode> jit_modes() {
  std::vector<Mode> all;
  if (Context().isa() >= IsaLevel::kAvx512) all.push_back({"jit", "bf16", "avx512"});
  if (Context().isa() >= IsaLevel::kAmx) all.push_back({"jit", "bf16", "amx"});
  return all;
}

void expect_ops_hold(const TestModel& model, const Mode& run) {
  const TempDir dir;
  model.write(dir);
  CommonOptions options;
  options.model = dir.path();
  options.backend = run.backend;
  options.act = run.act;
  options.isa = run.isa;
  options.kv_cache = run.kv_cache;
  options.threads = 2;
  Session session(options, Session::Purpose::kCompare);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) {
    ids.push_back((i * 37 + 11) % static_cast<int32_t>(session.config().vocab_size));
  }
  Qwen3_5& m = session.model();
  const CompareResult r = compare_ops(m, m.direct_ops(), session.runtime().context().pool(), ids, 3,
                                      [](const OpRecord&) {});
  EXPECT_TRUE(r.holds()) << run.backend << " " << run.isa << ": "
                         << (r.holds() ? "" : divergence_text(*r.first_divergence));
  EXPECT_GT(r.records, 0);
}

// A product of a code and an activation is exact in f32. From there to y a term goes through the
// sum of its block (or, NVFP4, of all), at most K roundings, its scale, the sum of blocks and the
// global scale; w itself is one rounding. A block of b columns has K / b + 1 sums behind it, and
// b + K / b <= K + 1: K + 4 roundings of 2^-24 bound all formats.
void expect_projection_holds(const TestModel& model, const std::string& module,
                             const FloatMatrix& w, const std::vector<float>& factors) {
  const std::vector<float> values = w.values();
  const TempDir dir;
  model.write(dir);
  const ModelDir files(dir.path());
  const QuantConfig quant = QuantConfig::load(files);
  constexpr int64_t kRows = 5;
  Tensor a(DType::kBF16, kRows, w.k);
  for (int64_t i = 0; i < kRows * w.k; ++i) {
    a.row<bfloat16>(0)[i] = bfloat16::from_float(std::sin(0.7f * static_cast<float>(i)));
  }
  for (const Backend backend : {Backend::kReference, Backend::kJit}) {
    const Context ctx;
    if (backend == Backend::kJit && ctx.isa() == IsaLevel::kNone) continue;
    Checkpoint checkpoint = Checkpoint::open(files);
    WeightLoader loader(checkpoint, quant);
    std::vector<HostWeights> parts;
    parts.push_back(loader.single({module, w.n}, w.k, false));
    ASSERT_TRUE(parts.front().fp8 != nullptr || parts.front().fp4 != nullptr);
    Linear linear(ctx, {.backend = backend, .act = ActMode::kBF16}, std::move(parts),
                  {.dtype = DType::kF32});
    Tensor c(DType::kF32, kRows, w.n);
    AlignedBuffer scratch;
    scratch.reserve(linear.scratch_bytes(kRows));
    SerialPool pool;
    DirectOps ops(pool, backend == Backend::kJit ? LayerImpl::kSimd : LayerImpl::kScalar);
    linear.run(ops, {}, {a.view(), c.mutable_view(), {scratch.data(), scratch.size()}});
    const double n = static_cast<double>(w.k) + 4, gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t col = 0; col < w.n; ++col) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < w.k; ++k) {
          float x = a.row<bfloat16>(r)[k].to_float();
          if (!factors.empty()) {
            x = bfloat16::from_float(x * factors[static_cast<size_t>(k)]).to_float();
          }
          const double product = static_cast<double>(x) *
                                 static_cast<double>(values[static_cast<size_t>(col * w.k + k)]);
          sum += product;
          magnitude += std::fabs(product);
        }
        EXPECT_LE(std::fabs(static_cast<double>(c.row<float>(r)[col]) - sum), gamma * magnitude)
            << to_string(backend) << " row " << r << " column " << col;
      }
    }
  }
}

}  // namespace quern::smoke::test
