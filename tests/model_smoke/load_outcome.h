#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model_smoke/input_error.h"
#include "quern/context.h"
#include "tests/model_smoke/int4_model.h"

namespace quern::smoke::test {

inline std::vector<float> logits_of(const TestModel& model, const Mode& run) {
  const TempDir dir;
  model.write(dir);
  return logits_of(dir.path(), run);
}

/// The message, or "loaded".
inline std::string outcome(const TestModel& model) {
  try {
    (void)logits_of(model, {"reference", "f32"});
    return "loaded";
  } catch (const InputError& e) {
    return e.what();
  }
}

inline void expect_says(const std::string& text, const std::vector<std::string>& parts,
                        const std::string& what) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << what << ": no \"" << part << "\" in: " << text;
  }
}

/// Every level of kernels that runs here.
inline std::vector<Mode> jit_modes() {
  std::vector<Mode> all;
  if (Context().isa() >= IsaLevel::kAvx512) all.push_back({"jit", "bf16", "avx512"});
  if (Context().isa() >= IsaLevel::kAmx) all.push_back({"jit", "bf16", "amx"});
  return all;
}

}  // namespace quern::smoke::test
