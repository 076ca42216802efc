#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quern/problem.h"

namespace quern::bench {

/// Columns and depth of one weight matrix.
struct Shape {
  int64_t n = 0;
  int64_t k = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Whether weights come from memory for every call (as they do when a model decodes) or are the
/// same bytes call after call.
enum class ColdMode {
  kAuto,  ///< cold up to 16 rows: what decoding, with or without speculation, sees
  kHot,
  kCold,
};

/// What to run: every op with every shape, row count and thread count.
struct Selection {
  std::vector<std::string> ops = {"int8_gemm", "bf16_gemm"};
  int64_t block = 128;                                        ///< of fp8_gemm, both sides
  int64_t group = 128;                                        ///< of int4_gemm
  Int8Activations activations = Int8Activations::kDynamicS8;  ///< of int8_gemm and int4_gemm
  std::vector<Shape> shapes;
  std::vector<Shape> bmm_shapes;         ///< of each matrix of bmm; empty: `shapes`
  std::vector<int64_t> batches = {128};  ///< bmm only
  std::vector<int64_t> rows = {1, 4, 16, 64, 256};
  std::vector<int32_t> threads = {1};
  ColdMode cold = ColdMode::kAuto;
  IsaLevel isa = IsaLevel::kNone;  ///< kNone: left open
};

/// Shapes of the performance targets: q with gate, out_proj, in_proj_qkvz, in_proj_ba.
std::vector<Shape> default_shapes();
/// A head's w_kc and w_vc, DeepSeek-V3.
std::vector<Shape> default_bmm_shapes();

/// "16384x4096,2048 x 4096". Throws UsageError that quotes what is wrong.
std::vector<Shape> parse_shapes(std::string_view list);
/// One shape a line, `#` starts a comment. `name` is for messages. Throws UsageError with the line.
std::vector<Shape> parse_shape_file(std::string_view text, const std::string& name);
/// A list, or a file, or the name of a file in bench/shapes without its suffix.
std::vector<Shape> shapes_from_argument(const std::string& argument);

/// The rows of a selection in the order they are measured: all thread counts of a problem together,
/// so that they share a window. quantize_rows has no columns of its own and appears once per depth.
std::vector<Problem> expand(const Selection& selection);

/// A dozen problems that show each regime (decode, ridge, prefill, call overhead) within a minute.
std::vector<Problem> quick_problems(int32_t threads, IsaLevel isa);

/// Parses problem strings; throws UsageError that quotes the one that is wrong and points at the
/// byte. `threads` fills what a string leaves out; isa:auto is what leaving out isa means.
std::vector<Problem> parse_problems(const std::vector<std::string>& texts, int32_t threads);

}  // namespace quern::bench
