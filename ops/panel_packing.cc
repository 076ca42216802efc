// SSE2 is part of every x86-64, so that it needs no dispatch. Whole lines of 16 columns pass
// through registers; the ends of rows and of the matrix go byte by byte. What is read lies in
// pieces that no hardware prefetcher follows, so it is fetched ahead (bench/NOTES.md).
#include "ops/panel_packing.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/float8_lines.h"
#include "ops/packed_weights_builder.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

// A line of a panel is 16 columns of 4 bytes each: two bf16 depths or four s8 depths.
constexpr int64_t kCellBytes = 4;
constexpr auto kLine = static_cast<int64_t>(kLineBytes);

__m128i load(const std::byte* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
void store(std::byte* to, __m128i value) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}

// Rows of [k, n] are dealt out to so many panels at once: their lines, the rows' and those fetched
// ahead, at a multiple of 1 or 4 KiB from each other, fit a set of L1. Eight panels are 1.2 to 1.6
// times slower.
constexpr int64_t kPanelsAtOnce = 4;
// To so many lines of each, before the same rows' next panels are.
constexpr int64_t kLinesAtOnce = 4;
// And fetched so many lines ahead, in the same columns (bench/NOTES.md).
constexpr int64_t kLinesAhead = 8;

/// A hint: beyond the end of the matrix nothing happens.
void fetch_ahead(const std::byte* from, int64_t bytes) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes);
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
}

/// 16 bytes of each of four rows `step` apart are four cells of each: to[64 i + 4 r] = cell i of
/// row r.
void transpose_cells(const std::byte* from, int64_t step, __m128i flip, std::byte* to) noexcept {
  const __m128i r0 = load(from), r1 = load(from + step), r2 = load(from + 2 * step),
                r3 = load(from + 3 * step);
  const __m128i low01 = _mm_unpacklo_epi32(r0, r1), low23 = _mm_unpacklo_epi32(r2, r3);
  const __m128i high01 = _mm_unpackhi_epi32(r0, r1), high23 = _mm_unpackhi_epi32(r2, r3);
  store(to, _mm_xor_si128(_mm_unpacklo_epi64(low01, low23), flip));
  store(to + kLine, _mm_xor_si128(_mm_unpackhi_epi64(low01, low23), flip));
  store(to + 2 * kLine, _mm_xor_si128(_mm_unpacklo_epi64(high01, high23), flip));
  store(to + 3 * kLine, _mm_xor_si128(_mm_unpackhi_epi64(high01, high23), flip));
}

/// A line from two stored rows of 16 bf16.
void interleave_pairs(const std::byte* from, int64_t step, std::byte* to) noexcept {
  for (int64_t half = 0; half < 2; ++half) {
    const __m128i even = load(from + 16 * half), odd = load(from + step + 16 * half);
    store(to + 32 * half, _mm_unpacklo_epi16(even, odd));
    store(to + 32 * half + 16, _mm_unpackhi_epi16(even, odd));
  }
}

/// A line from four stored rows of 16 s8.
void interleave_quads(const std::byte* from, int64_t step, __m128i flip, std::byte* to) noexcept {
  const __m128i r0 = load(from), r1 = load(from + step), r2 = load(from + 2 * step),
                r3 = load(from + 3 * step);
  const __m128i low01 = _mm_unpacklo_epi8(r0, r1), low23 = _mm_unpacklo_epi8(r2, r3);
  const __m128i high01 = _mm_unpackhi_epi8(r0, r1), high23 = _mm_unpackhi_epi8(r2, r3);
  store(to, _mm_xor_si128(_mm_unpacklo_epi16(low01, low23), flip));
  store(to + 16, _mm_xor_si128(_mm_unpackhi_epi16(low01, low23), flip));
  store(to + 32, _mm_xor_si128(_mm_unpacklo_epi16(high01, high23), flip));
  store(to + 48, _mm_xor_si128(_mm_unpackhi_epi16(high01, high23), flip));
}

/// Rows of [k, n] to lines of `panels` panels. make_line(from, to) makes one from the `depths` rows
/// that it holds.
template <typename Line>
void deal_out(const std::byte* from, int64_t row_step, int64_t depths, int64_t panels,
              int64_t lines, int64_t cells_bytes, std::byte* to, int64_t panel_bytes,
              const Line& make_line) noexcept {
  for (int64_t first = 0; first < lines; first += kLinesAtOnce) {
    const int64_t end = std::min(first + kLinesAtOnce, lines);
    for (int64_t p = 0; p < panels; p += kPanelsAtOnce) {
      const int64_t count = std::min(kPanelsAtOnce, panels - p);
      for (int64_t l = first; l < end; ++l) {
        const std::byte* cells = from + l * depths * row_step + p * cells_bytes;
        for (int64_t d = 0; d < depths; ++d) {
          for (int64_t at = 0; at < count * cells_bytes; at += kLine) {
            fetch_ahead(cells + at, (kLinesAhead * depths + d) * row_step);
          }
        }
        for (int64_t i = 0; i < count; ++i) {
          make_line(cells + i * cells_bytes, to + (p + i) * panel_bytes + l * kLine);
        }
      }
    }
  }
}

/// Xored into every byte: it turns s8 into the unsigned code w + 128, padding (zero) included.
unsigned char flip_of(int64_t element, bool floats) noexcept {
  return element == 1 && !floats ? 0x80 : 0;
}

}  // namespace

PanelSource::PanelSource(const MatrixView& view, BmmOrder order) noexcept
    : data_(static_cast<const std::byte*>(view.data)),
      order_(order),
      element_(static_cast<int64_t>(size_of(view.dtype))),
      floats_(view.dtype == DType::kE4M3),
      n_(order == BmmOrder::kNK ? view.rows : view.cols),
      k_(order == BmmOrder::kNK ? view.cols : view.rows),
      row_bytes_(row_step(view)) {}

PanelSource PanelSource::moved_by(int64_t bytes) const noexcept {
  PanelSource other = *this;
  if (bytes != 0) other.data_ += bytes;
  return other;
}

void PanelSource::pack(int64_t first, int64_t count, int64_t panel_bytes,
                       std::byte* to) const noexcept {
  if (order_ == BmmOrder::kKN) return pack_kn(first, count, panel_bytes, to);
  for (int64_t i = 0; i < count; ++i) {
    pack_nk(first + i, panel_bytes / kLine, to + i * panel_bytes);
  }
}

void PanelSource::pack_line(int64_t first_column, int64_t columns, int64_t line,
                            std::byte* to) const noexcept {
  const bool nk = order_ == BmmOrder::kNK;
  const int64_t column_step = nk ? row_bytes_ : element_;
  const int64_t depth_step = nk ? element_ : row_bytes_;
  const int64_t depths = kCellBytes / element_;
  const int64_t present = std::clamp<int64_t>(k_ - line * depths, 0, depths);
  const auto flip = static_cast<std::byte>(flip_of(element_, floats_));
  std::memset(to, static_cast<int>(flip), kLineBytes);
  for (int64_t c = 0; c < columns && present > 0; ++c) {
    const std::byte* from = data_ + (first_column + c) * column_step + line * depths * depth_step;
    for (int64_t i = 0; i < present; ++i) {
      std::byte* cell = to + (floats_ ? float8_place(c, i) : c * kCellBytes + i * element_);
      std::memcpy(cell, from + i * depth_step, static_cast<size_t>(element_));
      if (element_ == 1) *cell ^= flip;
    }
  }
}

void PanelSource::pack_nk(int64_t panel, int64_t lines, std::byte* to) const noexcept {
  const int64_t first = panel * kPanelColumns;
  const int64_t columns = std::clamp<int64_t>(n_ - first, 0, kPanelColumns);
  constexpr int64_t kTransposed = 4;  ///< lines
  int64_t line = 0;
  if (columns == kPanelColumns) {
    const __m128i flip = _mm_set1_epi8(static_cast<char>(flip_of(element_, floats_)));
    const int64_t whole = k_ * element_ / (kTransposed * kCellBytes) * kTransposed;
    const std::byte* rows = data_ + first * row_bytes_;
    for (; line < whole; line += kTransposed) {
      const std::byte* from = rows + line * kCellBytes;
      if (line % (kLine / kCellBytes) == 0) {  // the same lines of the rows of the next panel
        for (int64_t c = 0; c < kPanelColumns; ++c) {
          fetch_ahead(from + c * row_bytes_, kPanelColumns * row_bytes_);
        }
      }
      for (int64_t c = 0; c < kPanelColumns; c += 4) {
        std::byte* lane = to + line * kLine + c * kCellBytes;
        if (floats_) {
          float8_lines_from_columns(from + c * row_bytes_, row_bytes_, lane);
        } else {
          transpose_cells(from + c * row_bytes_, row_bytes_, flip, lane);
        }
      }
    }
  }
  for (; line < lines; ++line) pack_line(first, columns, line, to + line * kLine);
}

void PanelSource::pack_kn(int64_t first, int64_t count, int64_t panel_bytes,
                          std::byte* to) const noexcept {
  const int64_t depths = kCellBytes / element_;
  const int64_t whole_lines = k_ / depths;
  const int64_t whole = std::clamp<int64_t>(n_ / kPanelColumns - first, 0, count);
  const int64_t cells_bytes = kPanelColumns * element_;
  const auto deal = [&](const auto& make) {
    deal_out(data_ + first * cells_bytes, row_bytes_, depths, whole, whole_lines, cells_bytes, to,
             panel_bytes, make);
  };
  if (element_ == 2) {
    deal([step = row_bytes_](const std::byte* from, std::byte* line) {
      interleave_pairs(from, step, line);
    });
  } else if (floats_) {
    deal([step = row_bytes_](const std::byte* from, std::byte* line) {
      float8_line_from_depths(from, step, line);
    });
  } else {
    deal([step = row_bytes_, flip = _mm_set1_epi8(static_cast<char>(flip_of(1, false)))](
             const std::byte* from, std::byte* line) { interleave_quads(from, step, flip, line); });
  }
  for (int64_t p = 0; p < count; ++p) {
    const int64_t left = std::clamp<int64_t>(n_ - (first + p) * kPanelColumns, 0, kPanelColumns);
    for (int64_t line = p < whole ? whole_lines : 0; line < panel_bytes / kLine; ++line) {
      pack_line((first + p) * kPanelColumns, left, line, to + p * panel_bytes + line * kLine);
    }
  }
}

}  // namespace quern::inline v0
