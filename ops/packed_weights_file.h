#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/packed_weights_builder.h"
#include "quern/packed_weights.h"
#include "quern/span.h"
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
  uint32_t dtype;         ///< DType of the stored weights
  uint32_t scale_dtype;   ///< DType of the scales plus 1: f32 (1), bf16 (2), f16 (3); 0: no scales
  int64_t n;
  int64_t k;
  int64_t group;        ///< with groups: columns of K that share a scale, at most k; else 0
  uint32_t zero_point;  ///< int4: Int4Zeros; else 0 (u8 codes are w + 128)
  uint32_t flags;       ///< kActOrder
  int64_t panel_bytes;
  int64_t scale_offset;    ///< from the start of the payload
  int64_t payload_offset;  ///< kHeaderBytes
  int64_t payload_bytes;   ///< to the end of the file
  uint64_t payload_check;  ///< LineChecksum of the payload
  uint64_t header_check;   ///< LineChecksum of the page, this field being 0
  int64_t batch;           ///< matrices, one behind the other
  int64_t groups;          ///< with groups: as packed; else 0
  int64_t zero_offset;     ///< from the start of the payload; 0 where there are none
  int64_t order_offset;    ///< likewise

  static constexpr char kMagic[8] = {'q', 'u', 'e', 'r', 'n', 'p', 'w', '\n'};
  static constexpr uint32_t kByteOrder = 0x01020304;
  static constexpr uint32_t kVersion = 3;
  static constexpr uint32_t kHeaderBytes = 4096;
  static constexpr uint32_t kActOrder = 1;  ///< of flags
};
static_assert(sizeof(WeightFileHeader) == 144, "the fields have no gaps: the struct is the format");

/// The page as it is read and written.
union WeightFilePage {
  WeightFileHeader header;
  std::byte bytes[WeightFileHeader::kHeaderBytes];
};
static_assert(sizeof(WeightFilePage) == WeightFileHeader::kHeaderBytes);

/// The header of `weights`, checks included. Reads all of the payload.
WeightFilePage make_weight_file_page(const PackedWeights& weights) noexcept;

/// What a file says its weights are, and where they lie.
struct WeightFileContent {
  WeightShape shape;
  WeightGeometry geometry;
};

/// Every rule that can be tested without the payload. `file_bytes` is the size of the file, at
/// least a page; `path` is for messages.
Result<WeightFileContent> check_weight_file_page(const WeightFilePage& page, int64_t file_bytes,
                                                 std::string_view path) noexcept;

/// Columns of K are where A is read, so that these are checked whether or not anybody asks for the
/// checksum. `first`: where the first of them stands in the section.
Status check_weight_order(Span<const int32_t> columns, int64_t first, int64_t k,
                          std::string_view path) noexcept;

}  // namespace quern::inline v0
