#pragma once

#include <cstdint>
#include <vector>

#include "ops/group_layout.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// Consecutive lines of a panel that one kernel call writes.
struct Int4Lines {
  bool words = false;  ///< a line is a stored word of each column
  int64_t first = 0;
  int64_t count = 0;
  int64_t word = 0;  ///< by words: which of K the first one is
};

/// Where the columns of K go in packed int4 weights.
struct Int4Order {
  GroupLayout layout;
  std::vector<int32_t> depths;       ///< [layout.depth()]: the column of K there, -1 for padding
  std::vector<int32_t> stored;       ///< [layout.groups]: whose scale and zero a packed group has
  std::vector<Int4Lines> by_words;   ///< words where they can be kept; else as by_depths
  std::vector<Int4Lines> by_depths;  ///< all lines
};

/// Views need no alignment.
int32_t g_idx_at(const VectorView& g_idx, int64_t column) noexcept;

/// Groups of consecutive columns.
Int4Order int4_order(int64_t k, int64_t group);
/// Columns in ascending order of g_idx (s32 [k], none negative), equal ones as they are; a group
/// with more than `group` columns is cut.
Int4Order int4_order(int64_t k, int64_t group, const VectorView& g_idx);

}  // namespace quern::inline v0
