#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/kernel.h"
#include "quern/int4_weights.h"
#include "quern/status.h"

namespace quern::jit {

/// How a kernel goes through K.
enum class Int4PackBy : uint8_t {
  kWords = 0,   ///< a line is a word of each column: eight consecutive depths, the first a multiple
  kDepths = 1,  ///< a line is any eight depths, named one by one
};

/// Lines of packed int4 panels (WeightLayout::kU4Vnni8N16) from 4-bit codes as checkpoints store
/// them.
struct Int4PackAvx512Config {
  Int4Storage storage = Int4Storage::kGptq;
  Int4PackBy by = Int4PackBy::kWords;  ///< kAwq: kDepths, as a word of it is of one depth
  bool poison = false;

  auto operator<=>(const Int4PackAvx512Config&) const = default;
};

/// Strides in bytes. Nothing is read beyond `columns` words of a row of words (kAwq: the words of
/// so many columns), and of words of no depth nothing.
struct Int4PackArgs {
  /// kGptq and kAwq: of the first panel's first column; the word of the first line (kWords), or of
  /// depth 0 (kDepths).
  const void* words = nullptr;
  int64_t row_step = 0;  ///< from one row of words to the next
  /// By words, and kAwq: from what is read to what is fetched meanwhile, a hint, to anywhere. Rows
  /// lie in pages of their own, so that no hardware follows.
  int64_t ahead = 0;
  /// kRowMajor: of each of 16 columns, the word of the first line (kWords) or of depth 0 (kDepths).
  /// Those beyond `columns` are read and not used: any of the others will do.
  const void* const* column = nullptr;
  /// kRowMajor by words: added to each of them.
  int64_t column_offset = 0;
  const int32_t* depths = nullptr;  ///< kDepths: 8 a line; -1: code 0 in every column
  void* to = nullptr;               ///< the first line of the first panel
  int64_t to_step = 0;              ///< from one panel to the next
  int64_t lines = 0;                ///< at least 1
  int64_t panels = 0;               ///< at least 1; kRowMajor: 1
  int64_t columns = 16;             ///< of each panel, 1..16; code 0 in the others
};

/// "int4_pack.avx512.gptq.words", ".awq.depths", ".rows.words", then ".poison" where set.
std::string to_string(const Int4PackAvx512Config& config);
std::optional<Int4PackAvx512Config> parse_int4_pack_avx512(std::string_view name);
const char* invalid(const Int4PackAvx512Config& config);
Result<GeneratedCode> generate(const Int4PackAvx512Config& config);

}  // namespace quern::jit
