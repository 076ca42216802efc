#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/packed_weights_builder.h"
#include "quern/packed_weights.h"
#include "quern/status.h"

namespace quern::inline v0 {

/// The first page of a file of packed weights; the payload, bytes as they are in memory, follows in
/// the second page, so that it can be used where it is mapped. Little-endian. A change of any kind
/// is a new version; zeros up to the end of the page are reserved.
struct WeightFileHeader {
  char magic[8];
  uint32_t byte_order;    ///< kByteOrder; something else when the writer's order was another
  uint32_t version;       ///< kVersion
  uint32_t header_bytes;  ///< kHeaderBytes
  uint32_t layout;        ///< WeightLayout
  uint32_t dtype;         ///< DType of the stored weights: bf16 (1) or u8 (4)
  uint32_t scale_dtype;   ///< DType of the scales plus 1: f32 (1); 0: no scales
  int64_t n;
  int64_t k;
  int64_t group;        ///< columns of K that share a scale; 0: all of them, the only one today
  uint32_t zero_point;  ///< kind of zero points; 0: none (u8 codes are w + 128), the only one today
  uint32_t flags;       ///< 0
  int64_t panel_bytes;
  int64_t scale_offset;    ///< from the start of the payload
  int64_t payload_offset;  ///< kHeaderBytes
  int64_t payload_bytes;   ///< to the end of the file
  uint64_t payload_check;  ///< LineChecksum of the payload
  uint64_t header_check;   ///< LineChecksum of the page, this field being 0
  int64_t batch;           ///< matrices, one behind the other

  static constexpr char kMagic[8] = {'q', 'u', 'e', 'r', 'n', 'p', 'w', '\n'};
  static constexpr uint32_t kByteOrder = 0x01020304;
  static constexpr uint32_t kVersion = 2;
  static constexpr uint32_t kHeaderBytes = 4096;
};
static_assert(sizeof(WeightFileHeader) == 120, "the fields have no gaps: the struct is the format");

/// The page as it is read and written.
union WeightFilePage {
  WeightFileHeader header;
  std::byte bytes[WeightFileHeader::kHeaderBytes];
};
static_assert(sizeof(WeightFilePage) == WeightFileHeader::kHeaderBytes);

/// The header of `weights`, checks included. Reads all of the payload.
WeightFilePage make_weight_file_page(const PackedWeights& weights) noexcept;

/// Every rule that can be tested without the payload. `file_bytes` is the size of the file, at
/// least a page; `path` is for messages. The geometry of what it says the weights are comes back.
Result<WeightGeometry> check_weight_file_page(const WeightFilePage& page, int64_t file_bytes,
                                              std::string_view path) noexcept;

}  // namespace quern::inline v0
