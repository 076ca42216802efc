#pragma once

#include <stdexcept>

namespace quern::bench {

/// The user asked for something that cannot be: main prints it and exits with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace quern::bench
