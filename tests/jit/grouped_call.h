#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "jit/gemm_args.h"
#include "jit/kernel.h"
#include "tests/jit/gemm_block.h"
#include "tests/jit/grouped_block.h"
#include "tests/support/guard_buffer.h"

namespace quern::jit {

/// What an operand's bytes are when nothing beyond them may be touched.
template <typename T>
test::GuardBuffer guarded(const std::vector<T>& values, test::Flush flush) {
  test::GuardBuffer buffer(values.size() * sizeof(T), flush);
  if (!values.empty()) std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
  buffer.make_read_only();
  return buffer;
}

/// A kernel's calls on a block, every operand against a guard page.
class GroupedCall {
 public:
  /// `b`: the block's codes, or what is decoded of them. `f32`: rows for FMAs. `tile_depth`: 0 for
  /// kernels without tiles.
  GroupedCall(const GroupedBlock& block, DType b, bool f32, int tile_depth, test::Flush flush)
      : block_(block),
        c_stride_(block.columns() + 3),
        rows_(guarded(block.rows_bytes(f32), flush)),
        panels_(b == block.codes    ? guarded(block.packed(), flush)
                : b == DType::kBF16 ? guarded(block.pairs(), flush)
                                    : guarded(block.quads(b == DType::kS8), flush)),
        scales_(guarded(block.scales(kGap), flush)),
        zeros_(guarded(block.zeros(kGap), flush)),
        sums_(guarded(block.group_sums(kGap), flush)),
        row_scale_(guarded(block.row_scale, flush)),
        bias_(guarded(block.bias, flush)),
        residual_(guarded(block.residual, flush)),
        acc_(static_cast<size_t>(block.rows * block.columns()) * 4, flush),
        tiles_(kTileScratchBytes, test::Flush::kEnd),
        c_(static_cast<size_t>(block.rows * c_stride_), kCanary) {
    std::memset(acc_.data(), 0xff, acc_.size());
    std::memset(tiles_.data(), 0xff, tiles_.size());
    const int a_bytes =
        block.depth() == 0 ? 0 : static_cast<int>(rows_.size()) / block.rows / block.depth();
    group_bytes_of_a_ = a_bytes * block.padded;
    const int depths_of_line = 32 / bits_of(b);
    group_bytes_of_b_ = block.padded / depths_of_line * 64;
    const int tile = block.config.a == DType::kS8 ? tile_depth : tile_depth / 2;
    args.a = rows_.data();
    args.a_stride = static_cast<int64_t>(a_bytes) * block.depth();
    args.b = panels_.data();
    args.panel_stride = static_cast<int64_t>(group_bytes_of_b_) * block.groups;
    args.k = block.depth();
    args.groups = block.groups;
    args.group_steps = block.padded / (tile_depth == 0 ? depths_of_line : tile);
    args.scale = scales_.data();
    args.scale_stride = (block.groups + kGap) * scale_bytes();
    args.zero = zeros_.size() == 0 ? nullptr : zeros_.data();
    args.zero_stride = (block.groups + kGap) * zero_bytes();
    args.group_sum = sums_.size() == 0 ? nullptr : sums_.data();
    args.group_sum_stride = (block.rows + kGap) * 4;
    args.acc = acc_.data();
    args.c = c_.data();
    args.c_stride = c_stride_ * 4;
    args.row_scale = reinterpret_cast<const float*>(row_scale_.data());
    args.bias = reinterpret_cast<const float*>(bias_.data());
    args.residual = residual_.data();
    args.residual_stride = block.columns() * 4;
    args.control = control_;
    args.m = block.rows;
    args.tiles = tiles_.data();
  }

  /// The groups in calls that end before each of `cuts`, ascending, and at the end.
  void run(const Kernel& kernel, const std::vector<int>& cuts, Numbers& numbers) {
    int from = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const int to = i < cuts.size() ? cuts[i] : block_.groups;
      GemmArgs part = args;
      part.first = i == 0;
      part.last = i == cuts.size();
      if (!part.last) {  // neither read nor written
        part.c = nullptr;
        part.residual = nullptr;
      }
      part.a = static_cast<const std::byte*>(args.a) + from * group_bytes_of_a_;
      part.b = static_cast<const std::byte*>(args.b) + from * group_bytes_of_b_;
      part.k = (to - from) * block_.padded;
      part.groups = to - from;
      part.scale = static_cast<const std::byte*>(args.scale) + from * scale_bytes();
      if (part.zero != nullptr) {
        part.zero = static_cast<const std::byte*>(args.zero) + from * zero_bytes();
      }
      if (part.group_sum != nullptr) {
        part.group_sum =
            static_cast<const std::byte*>(args.group_sum) + from * args.group_sum_stride;
      }
      hint(&part, part.groups * part.group_steps, numbers);
      kernel.call(part);
      from = to;
    }
    EXPECT_TRUE(acc_.slack_intact()) << kernel.name;
    EXPECT_TRUE(tiles_.slack_intact()) << kernel.name;
  }

  /// Of the epilogue with bias and residual, f32.
  void expect(int n, const std::string& name) const {
    for (int m = 0; m < block_.rows; ++m) {
      for (int column = 0; column < c_stride_; ++column) {
        double want = kCanary;
        if (column < n) {
          want = block_.value(m, column) + block_.bias[static_cast<size_t>(column)] +
                 block_.residual[static_cast<size_t>(m * block_.columns() + column)];
        }
        ASSERT_EQ(at(m, column), want)
            << name << " row " << m << " column " << column << " of " << n << ", " << block_.groups
            << " groups of " << block_.padded;
      }
    }
  }
  float at(int m, int column) const { return c_[static_cast<size_t>(m * c_stride_ + column)]; }

  GemmArgs args;

 private:
  static constexpr int kGap = 2;
  int scale_bytes() const { return 16 * static_cast<int>(size_of(block_.config.scale)); }
  int zero_bytes() const { return block_.config.zeros == Int4Zeros::kF32 ? 64 : 16; }

  const GroupedBlock& block_;
  int c_stride_;
  int group_bytes_of_a_ = 0, group_bytes_of_b_ = 0;
  test::GuardBuffer rows_, panels_, scales_, zeros_, sums_, row_scale_, bias_, residual_, acc_,
      tiles_;
  std::vector<float> c_;
  uint32_t control_[2] = {};
};

}  // namespace quern::jit
