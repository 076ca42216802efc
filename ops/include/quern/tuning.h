#pragma once

#include <cstdint>

#include "quern/export.h"
#include "quern/problem.h"

namespace quern {
inline namespace v0 {

/// How a GEMM is cut up. Changing any of these changes speed only, never a bit of the result.
struct GemmBlocking {
  /// Rows of the register block. Level amx: 16 or 32, mc a multiple of 16, mr * nr at most 64.
  int32_t mr = 0;
  int32_t nr = 0;  ///< 16-column vectors of the register block
  /// Rows a thread finishes before it moves on, mr..2^30; at most 4096 where K is cut.
  int64_t mc = 0;
  int64_t nc = 0;  ///< columns a thread finishes before it moves on: 16 * nr
  /// Depth of a cache block, a multiple of 64 (int4_gemm: whole groups as they are packed, see
  /// WeightLayout::kU4Vnni8N16); 0: all of K at once. 65,536 for sums that need 64 bits.
  int64_t kc = 0;
  /// How far ahead of each weight stream up to mr rows are fetched; 0: none. With more rows any
  /// other multiple of 64 up to 2^20 lets each cache block of weights be fetched while the one
  /// before is multiplied, or still earlier where blocks are shorter than nr times this.
  int32_t prefetch_bytes = 0;
};

/// Answers "how should this problem be cut up?". The compiled-in defaults answer when nobody else
/// does; a tuning database is another implementation of this interface. `lookup` is called at plan
/// creation and must be safe to call from several threads.
class QUERN_API TuningSource {
 public:
  virtual ~TuningSource();
  /// `problem` is a plan's: m is the largest M of its bucket, isa the level of the family that
  /// those rows use, threads the pool's; batch, which a plan does not know, is 0. True and *out
  /// filled where there is an entry. Entries are range-checked by the caller: an illegal one is
  /// refused with a line in explain(), never used.
  virtual bool lookup(const Problem& problem, GemmBlocking* out) const noexcept = 0;
  virtual const char* name() const noexcept = 0;
};

}  // namespace v0
}  // namespace quern
