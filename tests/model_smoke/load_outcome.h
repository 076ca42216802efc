#pragma once

#include <string>
#include <vector>

#include "tests/model_smoke/int4_model.h"

namespace quern::smoke::test {

/// As logits_of a directory.
std::vector<float> logits_of(const TestModel& model, const Mode& run);

/// The message of f32 activations on the reference, or "loaded".
std::string outcome(const TestModel& model);
void expect_says(const std::string& text, const std::vector<std::string>& parts,
                 const std::string& what);

/// Every level of kernels that runs here, with bf16 activations.
std::vector<Mode> jit_modes();
/// Every op of a forward pass of 40 tokens and of three more, one at a time, is within its bound:
/// each is held against the formula in double on the inputs that it really had, with an error
/// bound derived beside each formula (reference_check/), so that no error travels and none is
/// allowed for.
void expect_ops_hold(const TestModel& model, const Mode& run);

}  // namespace quern::smoke::test
