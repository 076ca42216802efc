#include "tests/model_smoke/load_outcome.h"

#include <gtest/gtest.h>

#include "model_smoke/compare_run.h"
#include "model_smoke/input_error.h"
#include "model_smoke/session.h"

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

}  // namespace quern::smoke::test
