#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_smoke/file_map.h"

namespace quern::smoke {

/// Every element type of the safetensors format.
enum class FileDType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// Name as written in files ("BF16"), and bits of one element (4 and 6 occur).
const char* to_string(FileDType dtype) noexcept;
int bits_of(FileDType dtype) noexcept;
bool parse_file_dtype(std::string_view name, FileDType* out) noexcept;

/// One tensor of a file somebody else holds open. No alignment is promised.
struct TensorView {
  std::string name;
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;  ///< empty: a scalar
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  std::string_view file;  ///< lives as long as the file is open

  int64_t elements() const noexcept;
};

/// "BF16 [4, 128]", for messages.
std::string describe(const TensorView& tensor);
std::string shape_text(const std::vector<int64_t>& shape);

/// Strict reader of one safetensors file. Accepts nothing the reference reader rejects, and also
/// rejects duplicate names and fields, names with NUL, and dimensions that are not plain
/// non-negative integers. Throws InputError with the file, the tensor and the rule.
class SafetensorsFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  explicit SafetensorsFile(FileMap map);

  /// Tensors in the order of the data section.
  const std::vector<TensorView>& tensors() const noexcept { return tensors_; }
  const TensorView* find(std::string_view name) const noexcept;
  const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept {
    return metadata_;
  }
  const std::string& file() const noexcept { return map_->name(); }
  uint64_t file_bytes() const noexcept { return map_->size(); }
  void check_unchanged() const { map_->check_unchanged(); }

 private:
  std::unique_ptr<FileMap> map_;  // on the heap: TensorView::file points into it
  std::vector<TensorView> tensors_;
  std::vector<size_t> by_name_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace quern::smoke
