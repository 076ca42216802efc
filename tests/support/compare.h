#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "quern/tensor_view.h"
#include "reference/exact.h"

/// One block of text per failed comparison: how many elements, the worst one, the first five, the
/// largest distance in units in the last place, and the line that brings the case back.
namespace quern::test {

/// Representable numbers between two elements of one type given by their bits; 0 for equal values,
/// UINT32_MAX where exactly one is NaN. +0 and -0 are one apart: they are different bits.
uint32_t ulp_distance(DType t, uint32_t x, uint32_t y);

/// Every element has the same bits; any NaN equals any NaN (payloads are not part of the contract).
::testing::AssertionResult same_bits(const MatrixView& actual, const MatrixView& expected,
                                     const std::string& reproducer);

/// Every element is one that `exact` allows (reference/exact.h). Where the bound is zero this means
/// the same bits as the rounded value, sign of zero included.
::testing::AssertionResult within(const MatrixView& actual, const reference::Exact& exact,
                                  const std::string& reproducer);

}  // namespace quern::test
