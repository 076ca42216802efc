#include "ops/packed_weights_file.h"

#include <algorithm>
#include <cstring>

#include "ops/checksum.h"
#include "ops/group_layout.h"
#include "ops/validate.h"

namespace quern::inline v0 {
namespace {

using Header = WeightFileHeader;

constexpr size_t kHeaderLines = Header::kHeaderBytes / LineChecksum::kLineBytes;

Status bad(std::string_view path, const char* text, const char* field, int64_t got,
           int64_t expected) noexcept {
  return Status::about_file(StatusCode::kBadFile, text, path, got, expected, field);
}

Status differs(std::string_view path, const char* field, int64_t got, int64_t expected) noexcept {
  return bad(path, "{f}: {s} is {0}, expected {1}", field, got, expected);
}

uint64_t header_check_of(const WeightFilePage& page) noexcept {
  WeightFilePage copy = page;
  copy.header.header_check = 0;
  LineChecksum sum;
  sum.add(copy.bytes, kHeaderLines);
  return sum.value();
}

bool is_known(uint32_t layout) noexcept {
  switch (static_cast<WeightLayout>(layout)) {
    case WeightLayout::kBf16Vnni2N16:
    case WeightLayout::kU8Vnni4N16:
    case WeightLayout::kBf16Vnni2N16GateUp:
    case WeightLayout::kU8Vnni4N16GateUp:
    case WeightLayout::kU4Vnni8N16:
    case WeightLayout::kU4Vnni8N16GateUp:
    case WeightLayout::kE4M3Vnni2N16:
    case WeightLayout::kE4M3Vnni2N16GateUp:
    case WeightLayout::kE4M3Vnni2N16Batch:
    case WeightLayout::kE5M2Vnni2N16:
    case WeightLayout::kE5M2Vnni2N16GateUp:
    case WeightLayout::kE2M1Vnni8N16:
    case WeightLayout::kE2M1Vnni8N16GateUp:
    case WeightLayout::kNvfp4N16:
    case WeightLayout::kNvfp4N16GateUp:
      return true;
    case WeightLayout::kNone:
      break;
  }
  return false;
}

/// The fields that follow from the shape, and those that have one legal value in this version.
Header expected_header(const WeightShape& shape, const WeightGeometry& geometry) noexcept {
  const LayoutTraits traits = layout_traits(shape.layout);
  Header h = {};
  std::copy(std::begin(Header::kMagic), std::end(Header::kMagic), h.magic);
  h.byte_order = Header::kByteOrder;
  h.version = Header::kVersion;
  h.header_bytes = Header::kHeaderBytes;
  h.layout = static_cast<uint32_t>(shape.layout);
  h.dtype = static_cast<uint32_t>(traits.dtype);
  if (traits.scales) h.scale_dtype = static_cast<uint32_t>(DType::kF32) + 1;
  if (traits.grouped) {
    h.scale_dtype = static_cast<uint32_t>(shape.grouped.scale) + 1;
    h.group = shape.grouped.group;
    h.groups = shape.grouped.groups;
    h.zero_point = static_cast<uint32_t>(shape.grouped.zeros);
    h.flags = shape.grouped.act_order ? Header::kActOrder : 0;
    h.zero_offset = geometry.zero_offset;
    h.order_offset = geometry.order_offset;
  }
  h.n = shape.n;
  h.k = shape.k;
  h.batch = shape.batch;
  h.panel_bytes = geometry.panel_bytes;
  h.scale_offset = geometry.scale_offset;
  h.payload_offset = Header::kHeaderBytes;
  h.payload_bytes = geometry.bytes;
  return h;
}

/// Whether the page is of this format, version and machine at all: only then do the other bytes
/// mean what we think.
Status check_identity(const WeightFilePage& page, std::string_view path) noexcept {
  const Header& h = page.header;
  if (std::memcmp(h.magic, Header::kMagic, sizeof h.magic) != 0) {
    int64_t got, expected;
    std::memcpy(&got, h.magic, sizeof got);
    std::memcpy(&expected, Header::kMagic, sizeof expected);
    return bad(path, "{f}: {s} is {0}, expected {1}: not a file of packed weights", "magic", got,
               expected);
  }
  if (h.byte_order == __builtin_bswap32(Header::kByteOrder)) {
    return bad(path, "{f}: {s} is {0}, expected {1}: written by a big-endian machine", "byte_order",
               h.byte_order, Header::kByteOrder);
  }
  if (h.byte_order != Header::kByteOrder) {
    return differs(path, "byte_order", h.byte_order, Header::kByteOrder);
  }
  if (h.version != Header::kVersion) {
    return bad(path, "{f}: {s} is {0}, expected {1}: pack the weights again", "version", h.version,
               Header::kVersion);
  }
  if (const uint64_t check = header_check_of(page); h.header_check != check) {
    return bad(path, "{f}: {s} is {0}, expected {1}: the header is damaged", "header_check",
               static_cast<int64_t>(h.header_check), static_cast<int64_t>(check));
  }
  return {};
}

Status check_fields(const Header& h, const Header& want, std::string_view path) noexcept {
  const struct {
    const char* name;
    int64_t got, expected;
  } fields[] = {
      {"header_bytes", h.header_bytes, want.header_bytes},
      {"dtype", h.dtype, want.dtype},
      {"scale_dtype", h.scale_dtype, want.scale_dtype},
      {"group", h.group, want.group},
      {"zero_point", h.zero_point, want.zero_point},
      {"flags", h.flags, want.flags},
      {"panel_bytes", h.panel_bytes, want.panel_bytes},
      {"scale_offset", h.scale_offset, want.scale_offset},
      {"payload_offset", h.payload_offset, want.payload_offset},
      {"payload_bytes", h.payload_bytes, want.payload_bytes},
      {"groups", h.groups, want.groups},
      {"zero_offset", h.zero_offset, want.zero_offset},
      {"order_offset", h.order_offset, want.order_offset},
  };
  for (const auto& field : fields) {
    if (field.got != field.expected) return differs(path, field.name, field.got, field.expected);
  }
  return {};
}

Status out_of_range(std::string_view path, const char* field, int64_t got, int64_t limit) noexcept {
  return bad(path, "{f}: {s} is {0}, expected 0 to {1}", field, got, limit);
}

/// Floating-point codes have one type of scale and none of what int4 may have.
Status check_float_groups(const Header& h, DType codes, std::string_view path) noexcept {
  const DType type = codes == DType::kE2M1 ? DType::kBF16 : DType::kF32;
  const auto scale = static_cast<uint32_t>(type) + 1;
  if (h.scale_dtype != scale) return differs(path, "scale_dtype", h.scale_dtype, scale);
  if (h.zero_point != 0) return differs(path, "zero_point", h.zero_point, 0);
  return h.flags == 0 ? Status() : differs(path, "flags", h.flags, 0);
}

/// The fields that say how the columns of K are grouped, into `out`.
Status read_groups(const Header& h, DType codes, std::string_view path,
                   WeightGroups* out) noexcept {
  const int64_t least = h.k == 0 ? 0 : 1;
  if (h.group < least || h.group > h.k) {
    return bad(path, "{f}: {s} is {0}, which is none of 1 to k ({1})", "group", h.group, h.k);
  }
  if (codes != DType::kU4) {
    if (const Status s = check_float_groups(h, codes, path); !s.ok()) return s;
  }
  const auto scale = static_cast<DType>(h.scale_dtype - 1);
  if (h.scale_dtype == 0 || h.scale_dtype > static_cast<uint32_t>(DType::kF16) + 1) {
    return bad(path, "{f}: {s} is {0}, expected 1 to {1}", "scale_dtype", h.scale_dtype,
               static_cast<int64_t>(DType::kF16) + 1);
  }
  if (h.zero_point > static_cast<uint32_t>(Int4Zeros::kF32)) {
    return out_of_range(path, "zero_point", h.zero_point, static_cast<int64_t>(Int4Zeros::kF32));
  }
  if (h.flags > Header::kActOrder) return out_of_range(path, "flags", h.flags, Header::kActOrder);
  const bool act_order = h.flags == Header::kActOrder;
  // g_idx may name groups of any size, each of which is cut: full ones at best, single columns at
  // worst.
  const int64_t full = GroupLayout(h.k, h.group).groups;
  if (h.groups < full || h.groups > (act_order ? h.k : full)) {
    return bad(path, "{f}: {s} is {0}, which does not go with k and a group of {1}", "groups",
               h.groups, h.group);
  }
  *out = {h.group, h.groups, scale, static_cast<Int4Zeros>(h.zero_point), act_order};
  return {};
}

/// The fields that everything else follows from, each in its range.
Result<WeightShape> read_shape(const Header& h, std::string_view path) noexcept {
  if (!is_known(h.layout)) {
    return bad(path, "{f}: {s} {0} is none that this version knows", "layout", h.layout, 0);
  }
  if (h.n < 0 || h.n > kMaxExtent) return out_of_range(path, "n", h.n, kMaxExtent);
  if (h.k < 0 || h.k > kMaxExtent) return out_of_range(path, "k", h.k, kMaxExtent);
  if (h.batch < 0 || h.batch > kMaxExtent) return out_of_range(path, "batch", h.batch, kMaxExtent);
  WeightShape shape{static_cast<WeightLayout>(h.layout), h.n, h.k, h.batch, {}};
  const LayoutTraits traits = layout_traits(shape.layout);
  if (traits.grouped || traits.blocks) {
    if (h.k > kMaxGroupedK) return out_of_range(path, "k", h.k, kMaxGroupedK);
    if (h.batch != 1) return differs(path, "batch", h.batch, 1);
  }
  if (traits.grouped) {
    if (const Status s = read_groups(h, traits.dtype, path, &shape.grouped); !s.ok()) return s;
  }
  return shape;
}

}  // namespace

WeightFilePage make_weight_file_page(const PackedWeights& weights) noexcept {
  const WeightShape shape = PackedWeightsBuilder::shape_of(weights);
  const auto geometry = weight_geometry(shape);
  WeightFilePage page;
  std::memset(&page, 0, sizeof page);
  page.header = expected_header(shape, *geometry);
  LineChecksum payload;
  payload.add(weights.data(), weights.bytes() / LineChecksum::kLineBytes);
  page.header.payload_check = payload.value();
  page.header.header_check = header_check_of(page);
  return page;
}

Result<WeightFileContent> check_weight_file_page(const WeightFilePage& page, int64_t file_bytes,
                                                 std::string_view path) noexcept {
  if (const Status s = check_identity(page, path); !s.ok()) return s;
  const Header& h = page.header;
  const auto shape = read_shape(h, path);
  if (!shape.ok()) return shape.status();
  const auto geometry = weight_geometry(*shape);
  if (!geometry.ok()) {
    return bad(path, "{f}: {s} {0} and k {1} make more than 2^48 bytes", "n", h.n, h.k);
  }
  const Header want = expected_header(*shape, *geometry);
  if (const Status s = check_fields(h, want, path); !s.ok()) return s;
  const std::byte* rest = page.bytes + sizeof h;
  if (std::any_of(rest, page.bytes + sizeof page, [](std::byte b) { return b != std::byte{0}; })) {
    return bad(path, "{f}: {s} after the header's {0} bytes are not all zero", "reserved bytes",
               sizeof h, 0);
  }
  const int64_t expected = want.payload_offset + want.payload_bytes;
  if (file_bytes != expected) return differs(path, "the size of the file", file_bytes, expected);
  return WeightFileContent{*shape, *geometry};
}

Status check_weight_order(Span<const int32_t> columns, int64_t first, int64_t k,
                          std::string_view path) noexcept {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < -1 || columns[i] >= k) {
      return bad(path, "{f}: {s} {1} is {0}, which is no column", "order", columns[i],
                 first + static_cast<int64_t>(i));
    }
  }
  return {};
}

}  // namespace quern::inline v0
