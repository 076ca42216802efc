#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quern/export.h"
#include "quern/status.h"

namespace quern {
inline namespace v0 {

/// How packed bytes are laid out. The value names a byte format for ever: a change of layout is a
/// new value. "n16" is a panel of 16 output columns that runs through all of K, so that a decode
/// thread which takes four panels walks four sequential streams. A line is 64 bytes of a panel; K
/// is padded to 16 lines, a whole AMX tile, so that avx512 and amx kernels read the same bytes and
/// neither reads beyond a panel.
enum class WeightLayout : uint32_t {
  kNone = 0,
  /// panel p, k-pair i, column c, j in {0, 1}: bf16 W[16 p + c][2 i + j]; zero beyond N and K.
  kBf16Vnni2N16 = 0x0111,
  /// panel p, k-quad i, column c, j in 0..3: u8 code W[16 p + c][4 i + j] + 128; 128 beyond N and
  /// K. Then one f32 scale for each of the padded columns, zero beyond N.
  kU8Vnni4N16 = 0x0211,
  /// As the two above with panels alternating: gate columns 16 p.., up columns 16 p...
  kBf16Vnni2N16GateUp = 0x0112,
  kU8Vnni4N16GateUp = 0x0212,
};

/// "bf16.vnni2.n16.v2", "u8.vnni4.n16.v2", with ".gateup" where panels alternate.
QUERN_API const char* to_string(WeightLayout layout) noexcept;

struct MapWeightsOptions {
  /// Reads the whole file once and compares its checksum. Without it a map is two reads of a page,
  /// whatever the size, and a flipped bit among the weights is a flipped bit among the weights.
  bool verify = false;
};

/// Immutable packed weights. Copies share the bytes; safe to use from any number of threads.
class QUERN_API PackedWeights {
 public:
  PackedWeights() = default;

  /// Writes a file that map() takes (format: ops/README.md, "Packed weights on disk"). It is
  /// written under another name in the same directory, synchronised and renamed, so that nobody
  /// ever sees half of it; what `path` named before stays whole for whoever has it mapped.
  Status save(const std::string& path) const;
  /// Weights that lie in the file's own pages: nothing is copied, and processes that map the same
  /// file share the memory. Every field of the header is checked first; a file that is not exactly
  /// what save() wrote gives kBadFile. The mapping lives as long as any copy of the result.
  ///
  /// The file must not shrink while it is mapped: the kernel answers an access to a lost page with
  /// SIGBUS, and quern installs no handler. map() itself never touches the mapped pages (it reads
  /// the file, so a file cut meanwhile gives kBadFile), and save() never changes a file in place.
  static Result<PackedWeights> map(const std::string& path, const MapWeightsOptions& options = {});

  WeightLayout layout() const noexcept { return layout_; }
  /// Output columns of C that these weights produce (of each part, for gate/up layouts) and depth.
  int64_t n() const noexcept { return n_; }
  int64_t k() const noexcept { return k_; }
  /// Matrices of that shape, panels of the first, then of the second, ...; then all their scales.
  /// 1 but for those of bmm.
  int64_t batch() const noexcept { return batch_; }
  /// Everything, scales included.
  size_t bytes() const noexcept { return bytes_; }
  /// 64-byte aligned.
  const std::byte* data() const noexcept { return data_.get(); }
  /// No bytes: default-constructed or moved from.
  bool empty() const noexcept { return data_ == nullptr; }

  /// Bytes from one panel of 16 columns to the next.
  int64_t panel_bytes() const noexcept { return panel_bytes_; }
  /// Null where the layout has no scales.
  const float* scales() const noexcept;

 private:
  friend class PackedWeightsBuilder;
  WeightLayout layout_ = WeightLayout::kNone;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t batch_ = 1;
  int64_t panel_bytes_ = 0;
  size_t bytes_ = 0;
  size_t scale_offset_ = 0;
  std::shared_ptr<const std::byte> data_;
};

}  // namespace v0
}  // namespace quern
