#pragma once

#include <cstddef>
#include <cstdint>

namespace quern::jit {

/// The argument of every GEMM micro-kernel. One call computes a block of C: at most mr rows and 16
/// * nr packed columns, over k elements of depth; or several such blocks, one below the other.
/// Strides are in bytes. A field that the kernel's Config does not use is not read.
struct GemmArgs {
  /// First row of the block. s8 rows are zero-padded to a multiple of 4, of 64 for AMX kernels.
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;  ///< first panel of 16 columns, at the first depth of this call
  int64_t panel_stride = 0;
  /// Where weights are fetched ahead from. A kernel with one stream a panel begins at `prefetch`,
  /// panel_stride apart, and after prefetch_steps steps (a multiple of 4, at most the whole steps
  /// of this call) goes on at prefetch_next; one that fetches consecutive lines takes them all from
  /// prefetch_next. Only hints: any address is legal.
  const void* prefetch = nullptr;
  int64_t prefetch_steps = 0;
  const void* prefetch_next = nullptr;
  int64_t k = 0;  ///< depth of this call in elements; a multiple of 64 unless it is the last one

  /// Partial sums [mr][16 * nr] (f32, s32, or s64 in two halves a vector) between calls that cut K.
  /// `first`: start from zero instead of loading; `last`: finish into c instead of storing.
  void* acc = nullptr;
  int64_t acc_step = 0;  ///< bytes to those of the next block
  int64_t first = 1;
  int64_t last = 1;

  void* c = nullptr;
  int64_t c_stride = 0;
  int64_t n = 0;  ///< columns of c that exist in this block, at least 1
  /// Of mr rows each, at least 1; 1 for AMX kernels. The first one's rows of A, C and all else are
  /// given. A kernel that has more than one to compute moves these fields along; with one too,
  /// prefetch_next goes behind the lines that were fetched. They are the next call's to set anew.
  int64_t blocks = 1;

  const float* row_scale = nullptr;  ///< [mr]
  const int32_t* row_sum = nullptr;  ///< [mr] sums of the s8 activations over all of K
  const float* col_scale = nullptr;  ///< [16 * nr] as packed
  const float* bias = nullptr;       ///< [n]
  const float* bias_up = nullptr;    ///< [n], with gate/up panels
  const void* residual = nullptr;    ///< as c
  int64_t residual_stride = 0;

  // What follows is for kernels whose weights have scales by groups of K. Their running sums are in
  // acc from the first group on, f32, also where K is not cut.

  int64_t groups = 0;  ///< of this call; K is cut between groups only
  /// Of the K loop in each group, at least 1: 64-byte lines of a panel, or tiles.
  int64_t group_steps = 0;
  const void* scale = nullptr;  ///< [groups][16] of the first panel and of this call's first group
  int64_t scale_stride = 0;     ///< bytes to the next panel's
  const void* zero = nullptr;   ///< as scale: u8 or f32
  int64_t zero_stride = 0;
  /// What zero points are multiplied with, of this call's first group and the block's first row:
  /// [groups] [rows] sums of the row over the group, a word each. s32 times -8 with the symmetric
  /// zero; s32 with wide groups; else f32.
  const void* group_sum = nullptr;
  int64_t group_sum_stride = 0;  ///< bytes to the next group's

  /// Two words of the caller's, for kernels that change MXCSR while they multiply: kernels have no
  /// stack frame to keep it in.
  uint32_t* control = nullptr;

  // What follows is for AMX kernels only.

  int64_t m = 0;  ///< rows of this block: 1..16 where mr is 16, 17..32 where it is 32
  /// kTileScratchBytes of the calling thread's, 64-byte aligned: tiles go through it.
  void* tiles = nullptr;
  /// Load the tile configuration before the first tile is used. May be left out where the tiles of
  /// this thread still have a shape that serves_tiles() says will do.
  int64_t configure = 1;
  int64_t release = 1;  ///< leave the tiles in their initial state
};

/// Staged C, the padded tail of A, decoded weights.
constexpr int64_t kTileScratchBytes = 16 << 10;

/// Whether tiles configured for a block of `configured` rows (0: not configured) can be used for
/// one of `rows` rows and nr panels: the shapes of the registers that it uses are the same. A tile
/// of A has tile_bytes of each row; only where they are 64 is it shaped as a tile of weights.
constexpr bool serves_tiles(int64_t configured, int64_t rows, int nr, int tile_bytes = 64) {
  if (configured == rows) return true;
  if (rows == 16) return configured > 16 && nr <= 2;
  return rows == 32 && configured == 16 && tile_bytes == 64;
}

}  // namespace quern::jit
