#pragma once

#include <string>
#include <vector>

#include "ops/context_impl.h"
#include "quern/isa.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// One kernel family that was considered for a plan, in order of preference.
struct Candidate {
  const char* family = "";
  IsaLevel level = IsaLevel::kNone;  ///< what its kernels need; kNone: not generated
  const char* refused = nullptr;     ///< why not; null: it is used
  /// Where two families are used: the rows up to which this one is. 0: all that no other takes.
  int64_t few_rows = 0;
};

/// Which family a plan uses and why not the others. Decided once, at create, from the machine and
/// the Desc. A plan may have a second family for few rows, where that cannot be seen in the result
/// or the Desc allows it.
struct Dispatch {
  std::vector<Candidate> candidates;
  Status status;  ///< not ok where every candidate was refused

  /// The first that was not refused; null where there is none.
  const Candidate* chosen() const noexcept;
  /// "  amx: refused: ...\n  avx512: chosen\n", and "  avx512: chosen for m 1..4\n"
  std::string explain() const;
};

/// `no_amx`: why the op has no AMX kernel; null where it has. `few_rows`: up to so many rows the
/// avx512 family stands in for the amx one; 0: never.
Dispatch choose_family(const ContextImpl& ctx, const char* no_amx, int64_t few_rows);

}  // namespace quern::inline v0
