#include "ops/packed_weights_file.h"

#include <algorithm>
#include <cstring>

#include "ops/checksum.h"
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
      return true;
    case WeightLayout::kNone:
      break;
  }
  return false;
}

/// The fields that follow from layout, n and k, and those that have one legal value in this
/// version.
Header expected_header(const WeightShape& shape, const WeightGeometry& geometry) noexcept {
  const LayoutTraits traits = layout_traits(shape.layout);
  Header h = {};
  std::copy(std::begin(Header::kMagic), std::end(Header::kMagic), h.magic);
  h.byte_order = Header::kByteOrder;
  h.version = Header::kVersion;
  h.header_bytes = Header::kHeaderBytes;
  h.layout = static_cast<uint32_t>(shape.layout);
  h.dtype = static_cast<uint32_t>(traits.dtype);
  h.scale_dtype = traits.scales ? static_cast<uint32_t>(DType::kF32) + 1 : 0;
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
  };
  for (const auto& field : fields) {
    if (field.got != field.expected) return differs(path, field.name, field.got, field.expected);
  }
  return {};
}

}  // namespace

WeightFilePage make_weight_file_page(const PackedWeights& weights) noexcept {
  const WeightShape shape{weights.layout(), weights.n(), weights.k(), weights.batch()};
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

Result<WeightGeometry> check_weight_file_page(const WeightFilePage& page, int64_t file_bytes,
                                              std::string_view path) noexcept {
  if (const Status s = check_identity(page, path); !s.ok()) return s;
  const Header& h = page.header;
  if (!is_known(h.layout)) {
    return bad(path, "{f}: {s} {0} is none that this version knows", "layout", h.layout, 0);
  }
  if (h.n < 0 || h.n > kMaxExtent) {
    return bad(path, "{f}: {s} is {0}, expected 0 to {1}", "n", h.n, kMaxExtent);
  }
  if (h.k < 0 || h.k > kMaxExtent) {
    return bad(path, "{f}: {s} is {0}, expected 0 to {1}", "k", h.k, kMaxExtent);
  }
  if (h.batch < 0 || h.batch > kMaxExtent) {
    return bad(path, "{f}: {s} is {0}, expected 0 to {1}", "batch", h.batch, kMaxExtent);
  }
  const WeightShape shape{static_cast<WeightLayout>(h.layout), h.n, h.k, h.batch};
  const auto geometry = weight_geometry(shape);
  if (!geometry.ok()) {
    return bad(path, "{f}: {s} {0} and k {1} make more than 2^48 bytes", "n", h.n, h.k);
  }
  const Header want = expected_header(shape, *geometry);
  if (const Status s = check_fields(h, want, path); !s.ok()) return s;
  const std::byte* rest = page.bytes + sizeof h;
  if (std::any_of(rest, page.bytes + sizeof page, [](std::byte b) { return b != std::byte{0}; })) {
    return bad(path, "{f}: {s} after the header's {0} bytes are not all zero", "reserved bytes",
               sizeof h, 0);
  }
  const int64_t expected = want.payload_offset + want.payload_bytes;
  if (file_bytes != expected) return differs(path, "the size of the file", file_bytes, expected);
  return *geometry;
}

}  // namespace quern::inline v0
