#pragma once

#include <string>
#include <vector>

#include "tests/model_smoke/float_model.h"
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

/// One projection of the model, loaded and run in both backends on five rows of bf16 activations,
/// against y = sum of w (x s) in double: w spelled out by the format's description, x s rounded to
/// bf16; s: factors of the columns of the input, none where empty. `model`: FP8 or NVFP4.
void expect_projection_holds(const TestModel& model, const std::string& module,
                             const FloatMatrix& matrix, const std::vector<float>& factors = {});

}  // namespace quern::smoke::test
