#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "quern/problem.h"

namespace quern::bench {

/// One problem on oneDNN's matmul, as a user who wants speed would set it up: weights reordered
/// once to the layout the primitive prefers, the primitive created beforehand. Lives in the child
/// process.
class OneDnnProblem {
 public:
  /// Throws std::runtime_error where oneDNN has nothing comparable. `cold_bytes`: of the weight
  /// copies of a cold problem.
  static std::unique_ptr<OneDnnProblem> create(const Problem& problem, size_t cold_bytes);
  virtual ~OneDnnProblem() = default;

  /// One call, waited for, with the weight copy whose turn it is.
  virtual void run() = 0;
  /// Its implementation name and the types.
  virtual std::string kernel() const = 0;
};

/// "oneDNN 2.6.3", as the library that was loaded says.
std::string onednn_name();

}  // namespace quern::bench
