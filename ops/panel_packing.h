#pragma once

#include <cstddef>
#include <cstdint>

#include "quern/bmm.h"
#include "quern/tensor_view.h"

namespace quern::inline v0 {

/// A matrix of weights as somebody stores it: bf16, s8 that becomes the code w + 128, or e4m3. The
/// view has been checked.
class PanelSource {
 public:
  PanelSource() = default;
  explicit PanelSource(const MatrixView& view, BmmOrder order = BmmOrder::kNK) noexcept;

  /// The same matrix somewhere else.
  PanelSource moved_by(int64_t bytes) const noexcept;
  /// Fills `count` panels from `first` on, panel_bytes apart, each 16 columns of C, zero (s8: the
  /// code of zero) beyond n and k. Every byte of the panel_bytes, whole lines, is written. Rows of
  /// [k, n] are read once for several panels, so that many at once are cheaper than one by one.
  void pack(int64_t first, int64_t count, int64_t panel_bytes, std::byte* to) const noexcept;

  const std::byte* data() const noexcept { return data_; }

 private:
  void pack_nk(int64_t panel, int64_t lines, std::byte* to) const noexcept;
  void pack_kn(int64_t first, int64_t count, int64_t panel_bytes, std::byte* to) const noexcept;
  void pack_line(int64_t first_column, int64_t columns, int64_t line, std::byte* to) const noexcept;

  const std::byte* data_ = nullptr;
  BmmOrder order_ = BmmOrder::kNK;
  int64_t element_ = 2;  ///< bytes
  bool floats_ = false;  ///< 8-bit ones
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t row_bytes_ = 0;  ///< from one stored row to the next
};

}  // namespace quern::inline v0
