#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/model_smoke/test_model.h"

namespace quern::smoke::test {

using Rng = std::mt19937_64;

/// Damages bytes: flips, cuts, copies, and tokens that JSON readers trip over.
std::string damage(std::string s, Rng* rng, size_t from = 0);

/// A valid JSON tree with one value replaced: gets past the parser into the checks behind it.
void damage_tree(Json* root, Rng* rng);

/// Calls `load` with a generator for each case. It returns, or throws InputError with a message;
/// anything else is a failure that prints its seed. QUERN_TEST_SEED and QUERN_TEST_CASES choose the
/// cases; some must throw.
void run_cases(const char* what, uint64_t cases, const std::function<void(Rng*)>& load);

}  // namespace quern::smoke::test
