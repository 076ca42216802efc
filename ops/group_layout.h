#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/checked.h"

namespace quern::inline v0 {

/// How K lies in packed weights whose columns share scales by group: a group begins on a line and
/// is cut into `tiles` equal tiles of at most 64 columns (a row of an AMX tile in s8), rounded up
/// to whole lines of 8; the columns that a group does not have are zeros in A. All groups are as
/// long, the last one too.
struct GroupLayout {
  int64_t k = 0;
  int64_t group = 0;       ///< columns of K that share a scale, at most k
  int64_t groups = 0;      ///< the last one may be shorter
  int64_t tile_depth = 0;  ///< a multiple of 8, at most 64
  int64_t padded = 0;      ///< columns a group takes: a multiple of tile_depth

  static constexpr int64_t kLineDepth = 8;
  static constexpr int64_t kMostTileDepth = 64;

  GroupLayout() = default;
  /// `size`: of a group, at least 1, or -1 for all of k.
  GroupLayout(int64_t columns, int64_t size) noexcept : k(columns) {
    group = size < 0 ? k : std::min(size, k);
    if (k == 0) return;
    groups = ceil_div(k, group);
    const int64_t tiles = ceil_div(group, kMostTileDepth);
    tile_depth = ceil_div(ceil_div(group, tiles), kLineDepth) * kLineDepth;
    padded = tiles * tile_depth;
  }

  /// With g_idx groups may have any number of columns, so that some are cut into several.
  GroupLayout(int64_t columns, int64_t size, int64_t packed_groups) noexcept
      : GroupLayout(columns, size) {
    groups = packed_groups;
  }

  /// Columns of K with padding.
  int64_t depth() const noexcept { return groups * padded; }
  /// Columns lie where they lie in K: nothing is padded.
  bool dense() const noexcept { return depth() == k; }
};

}  // namespace quern::inline v0
