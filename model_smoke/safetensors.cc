#include "model_smoke/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model_smoke/input_error.h"
#include "model_smoke/safetensors_header.h"

namespace quern::smoke {
namespace {

struct DTypeRow {
  FileDType dtype;
  const char* name;
  int bits;
};

constexpr DTypeRow kDTypes[] = {
    {FileDType::kBool, "BOOL", 8},
    {FileDType::kF4, "F4", 4},
    {FileDType::kF6E2M3, "F6_E2M3", 6},
    {FileDType::kF6E3M2, "F6_E3M2", 6},
    {FileDType::kU8, "U8", 8},
    {FileDType::kI8, "I8", 8},
    {FileDType::kF8E5M2, "F8_E5M2", 8},
    {FileDType::kF8E4M3, "F8_E4M3", 8},
    {FileDType::kF8E8M0, "F8_E8M0", 8},
    {FileDType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {FileDType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {FileDType::kI16, "I16", 16},
    {FileDType::kU16, "U16", 16},
    {FileDType::kF16, "F16", 16},
    {FileDType::kBF16, "BF16", 16},
    {FileDType::kI32, "I32", 32},
    {FileDType::kU32, "U32", 32},
    {FileDType::kF32, "F32", 32},
    {FileDType::kC64, "C64", 64},
    {FileDType::kF64, "F64", 64},
    {FileDType::kI64, "I64", 64},
    {FileDType::kU64, "U64", 64},
};

const DTypeRow& row_of(FileDType dtype) noexcept {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row;
  }
  return kDTypes[0];
}

}  // namespace

const char* to_string(FileDType dtype) noexcept {
  return row_of(dtype).name;
}
int bits_of(FileDType dtype) noexcept {
  return row_of(dtype).bits;
}

bool parse_file_dtype(std::string_view name, FileDType* out) noexcept {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) {
      *out = row.dtype;
      return true;
    }
  }
  return false;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

std::string describe(const TensorView& tensor) {
  return std::string(to_string(tensor.dtype)) + " " + shape_text(tensor.shape);
}

int64_t TensorView::elements() const noexcept {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

namespace {

// The 8-byte length and the header it announces.
std::string_view header_text(const FileMap& map, uint64_t max_header) {
  const auto fail = [&](std::string_view key, std::string_view expected, std::string_view got) {
    throw InputError(map.name(), key, expected, got, "is the download complete?");
  };
  if (map.size() < 8) {
    fail("header length", "at least 8 bytes", "a file of " + std::to_string(map.size()));
  }
  uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = (n << 8) | static_cast<uint8_t>(map.data()[i]);
  // Compared with what is left, never added to: n can be near 2^64.
  const uint64_t left = map.size() - 8;
  if (n > max_header) {
    fail("header length", "at most " + std::to_string(max_header) + " bytes", std::to_string(n));
  }
  if (n > left) {
    fail("header length", "at most the " + std::to_string(left) + " bytes that follow",
         std::to_string(n));
  }
  const std::string_view text = map.text().substr(8, n);
  if (text.empty() || text.front() != '{') {
    fail("header", "JSON that starts with '{'",
         text.empty() ? "an empty header" : "byte " + std::to_string(uint8_t(text.front())));
  }
  return text;
}

// Bytes that shape and dtype ask for; throws when they overflow or end inside a byte.
uint64_t bytes_of(const HeaderTensor& t, const std::string& file) {
  int64_t n = 1;
  for (const int64_t d : t.shape) {
    // Step by step as TensorView::elements multiplies: [2^62, 4, 0] overflows on the way to 0.
    if (__builtin_mul_overflow(n, d, &n)) {
      throw InputError(file, t.name, "a shape whose product fits 63 bits", shape_text(t.shape));
    }
  }
  uint64_t bits = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(n), static_cast<uint64_t>(bits_of(t.dtype)),
                             &bits)) {
    throw InputError(file, t.name, "a size that fits 64 bits",
                     std::string(to_string(t.dtype)) + " " + shape_text(t.shape));
  }
  if (bits % 8 != 0) {
    throw InputError(
        file, t.name, "a size of whole bytes",
        std::to_string(bits) + " bits for " + to_string(t.dtype) + " " + shape_text(t.shape));
  }
  return bits / 8;
}

std::string range_text(uint64_t begin, uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + "]";
}

// Indices in the order of the names; throws at a name that is there twice.
std::vector<size_t> sorted_by_name(const std::vector<HeaderTensor>& tensors,
                                   const std::string& file) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string& name = tensors[order[i]].name;
    if (name == tensors[order[i - 1]].name) {
      throw InputError(file, name, "every tensor once", "a duplicate name");
    }
  }
  return order;
}

// The data section must be covered from 0 to its end, in order, without hole or overlap.
void check_layout(const std::vector<HeaderTensor>& tensors, uint64_t data_bytes,
                  const std::string& file) {
  uint64_t next = 0;
  for (const HeaderTensor& t : tensors) {
    const std::string offsets = "data_offsets " + range_text(t.begin, t.end);
    if (t.end < t.begin) throw InputError(file, t.name, "begin <= end", offsets);
    if (t.end > data_bytes) {
      throw InputError(
          file, t.name,
          "data_offsets within the data section of " + std::to_string(data_bytes) + " bytes",
          offsets, "is the download complete?");
    }
    if (t.begin != next) {
      throw InputError(file, t.name,
                       "data that begins at " + std::to_string(next) + " (no hole, no overlap)",
                       offsets);
    }
    const uint64_t want = bytes_of(t, file);
    if (want != t.end - t.begin) {
      throw InputError(
          file, t.name,
          std::to_string(want) + " bytes for " + to_string(t.dtype) + " " + shape_text(t.shape),
          std::to_string(t.end - t.begin) + " bytes (" + offsets + ")");
    }
    next = t.end;
  }
  if (next != data_bytes) {
    throw InputError(file, "data section", std::to_string(next) + " bytes as the header says",
                     std::to_string(data_bytes) + " bytes", "bytes after the last tensor");
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(FileMap map) : map_(std::make_unique<FileMap>(std::move(map))) {
  const std::string& file = map_->name();
  const std::string_view text = header_text(*map_, kMaxHeaderBytes);
  Header header = parse_safetensors_header(text, file);
  metadata_ = std::move(header.metadata);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const HeaderTensor& a, const HeaderTensor& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  by_name_ = sorted_by_name(header.tensors, file);
  const std::byte* data = map_->data() + 8 + text.size();
  check_layout(header.tensors, map_->size() - 8 - text.size(), file);
  tensors_.reserve(header.tensors.size());
  for (HeaderTensor& t : header.tensors) {
    tensors_.push_back(
        {std::move(t.name), t.dtype, std::move(t.shape), data + t.begin, t.end - t.begin, file});
  }
}

const TensorView* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](size_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == by_name_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

}  // namespace quern::smoke
