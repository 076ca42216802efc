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
  const char* refused = nullptr;     ///< why not; null: it was chosen
};

/// Which family a plan uses and why not the others. Decided once, at create, from the machine and
/// the Desc, never from M.
struct Dispatch {
  std::vector<Candidate> candidates;
  Status status;  ///< not ok where every candidate was refused

  /// The first that was not refused; null where there is none.
  const Candidate* chosen() const noexcept;
  /// "  amx: refused: ...\n  avx512: chosen\n"
  std::string explain() const;
};

Dispatch choose_family(const ContextImpl& ctx);

}  // namespace quern::inline v0
