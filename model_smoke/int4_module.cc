#include "model_smoke/int4_module.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "model_smoke/input_error.h"

namespace quern::smoke {
namespace {

constexpr int64_t kNibbles = 8;  // of a word

int64_t words(int64_t nibbles) noexcept {
  return (nibbles + kNibbles - 1) / kNibbles;
}

using Shape = std::array<int64_t, 2>;

struct Shapes {
  Shape codes, scale, zero;
};

Shapes shapes_of(Int4Storage storage, int64_t n, int64_t k, int64_t groups) noexcept {
  switch (storage) {
    case Int4Storage::kGptq:
      return {{words(k), n}, {groups, n}, {groups, words(n)}};
    case Int4Storage::kAwq:
      return {{k, words(n)}, {groups, n}, {groups, words(n)}};
    case Int4Storage::kRowMajor:
      return {{n, words(k)}, {n, groups}, {words(n), groups}};
  }
  return {};
}

int64_t groups_of(int64_t group, int64_t k) noexcept {
  const int64_t columns = group < 0 ? k : std::min(group, k);
  return columns == 0 ? 0 : (k + columns - 1) / columns;
}

void require(const TensorView& t, const Shape& shape, std::initializer_list<FileDType> types,
             const char* what) {
  const bool right_type = std::find(types.begin(), types.end(), t.dtype) != types.end();
  const bool right_shape = t.shape.size() == 2 && t.shape[0] == shape[0] && t.shape[1] == shape[1];
  if (right_type && right_shape) return;
  throw InputError(
      t.file, t.name,
      std::string(what) + " [" + std::to_string(shape[0]) + ", " + std::to_string(shape[1]) + "]",
      describe(t), "config.json and the tensor disagree");
}

const TensorView& need(const Checkpoint& c, const std::string& name, const std::string& why) {
  const TensorView* t = c.find(name);
  if (t == nullptr) throw InputError(c.source(), name, "a tensor of this name" + why, "none");
  return *t;
}

uint32_t word_at(const TensorView& t, int64_t i) {
  uint32_t word;
  std::memcpy(&word, t.data + i * 4, 4);
  return word;
}

DType scale_type(const TensorView& scale) {
  switch (scale.dtype) {
    case FileDType::kF16:
      return DType::kF16;
    case FileDType::kBF16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

constexpr int kAwqNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};

/// The code of W[n, k].
uint32_t code_at(const TensorView& codes, Int4Storage storage, int64_t n, int64_t k) {
  const int64_t width = codes.shape[1];
  switch (storage) {
    case Int4Storage::kGptq:
      return word_at(codes, k / kNibbles * width + n) >> (4 * (k % kNibbles)) & 15u;
    case Int4Storage::kAwq:
      return word_at(codes, k * width + n / kNibbles) >> (4 * kAwqNibble[n % kNibbles]) & 15u;
    case Int4Storage::kRowMajor:
      break;
  }
  return word_at(codes, n * width + k / kNibbles) >> (4 * (k % kNibbles)) & 15u;
}

/// The nibble of `zeros` for a column of C and a group.
uint32_t zero_nibble(const TensorView& zeros, Int4Storage storage, int64_t column, int64_t group) {
  const bool by_column = storage == Int4Storage::kRowMajor;
  const int64_t at = by_column ? column / kNibbles * zeros.shape[1] + group
                               : group * zeros.shape[1] + column / kNibbles;
  // All nibbles are compared with one number, so AWQ's order of columns does not matter, but for
  // the columns that do not exist.
  const auto place = static_cast<int>(column % kNibbles);
  return (word_at(zeros, at) >> (4 * (storage == Int4Storage::kAwq ? kAwqNibble[place] : place))) &
         15u;
}

void check_placeholder(const QuantConfig& quant, const TensorView& zeros, const Int4Scheme& scheme,
                       int64_t n, int64_t groups) {
  const auto middle = static_cast<uint32_t>(8 - scheme.zero_offset);
  const bool blank = std::all_of(zeros.data, zeros.data + zeros.bytes,
                                 [](std::byte b) { return b == std::byte{0}; });
  for (int64_t column = 0; !blank && column < n; ++column) {
    for (int64_t group = 0; group < groups; ++group) {
      const uint32_t stored = zero_nibble(zeros, scheme.storage, column, group);
      if (stored == middle) continue;
      const auto reading = static_cast<int64_t>(stored) + scheme.zero_offset;
      throw InputError(
          zeros.file, zeros.name,
          "zeros stored as " + std::to_string(middle) + ", because " + quant.file() +
              " says that the weights are symmetric (zero 8)" +
              (scheme.storage == Int4Storage::kGptq ? std::string(" in checkpoint_format ") +
                                                          (scheme.zero_offset ? "gptq" : "gptq_v2")
                                                    : std::string()),
          std::to_string(stored) + " for column " + std::to_string(column) + ", group " +
              std::to_string(group) + ", which reads as zero " + std::to_string(reading),
          "either the zeros count and the weights are not symmetric, or checkpoint_format is "
          "wrong");
    }
  }
}

std::vector<int32_t> read_g_idx(const TensorView& t, int64_t group, int64_t k) {
  if (t.dtype != FileDType::kI32 || t.shape.size() != 1 || t.shape[0] != k) {
    throw InputError(t.file, t.name, "I32 [" + std::to_string(k) + "]", describe(t));
  }
  const int64_t groups = groups_of(group, k);
  std::vector<int32_t> g_idx(static_cast<size_t>(k));
  bool sorted = true;
  for (int64_t i = 0; i < k; ++i) {
    const auto g = static_cast<int32_t>(word_at(t, i));
    if (g < 0 || g >= groups) {
      throw InputError(t.file, t.name, "groups from 0 to " + std::to_string(groups - 1),
                       std::to_string(g) + " at index " + std::to_string(i));
    }
    sorted = sorted && (group < 0 || g == i / group);
    g_idx[static_cast<size_t>(i)] = g;
  }
  if (sorted) g_idx.clear();
  return g_idx;
}

void check_weight_shape(const TensorView& t, int64_t n, int64_t k) {
  int64_t stored[2] = {};
  if (t.dtype == FileDType::kI64 && t.elements() == 2) {
    std::memcpy(stored, t.data, sizeof stored);
  } else if (t.dtype == FileDType::kI32 && t.elements() == 2) {
    for (int i = 0; i < 2; ++i) stored[i] = static_cast<int32_t>(word_at(t, i));
  } else {
    throw InputError(t.file, t.name, "I64 or I32 [2]", describe(t));
  }
  if (stored[0] != n || stored[1] != k) {
    throw InputError(t.file, t.name, "[" + std::to_string(n) + ", " + std::to_string(k) + "]",
                     "[" + std::to_string(stored[0]) + ", " + std::to_string(stored[1]) + "]",
                     "config.json and the tensor disagree");
  }
}

/// Copies a tensor of a module into the matrix of all, from the given row and column on.
void place(const TensorView& from, int64_t row, int64_t column, Tensor* to) {
  const size_t size = size_of(to->dtype());
  const size_t bytes = static_cast<size_t>(from.shape[1]) * size;
  for (int64_t i = 0; i < from.shape[0]; ++i) {
    std::memcpy(to->row<std::byte>(0) + static_cast<size_t>((row + i) * to->cols() + column) * size,
                from.data + static_cast<size_t>(i) * bytes, bytes);
  }
}

/// Rows of the matrix whose codes are all the same, or whose scales are all zero (bug log L03). The
/// storages keep a row in different places.
BlankRows blank_rows(const TensorView& codes, const TensorView& scale, const Int4Part& part,
                     int64_t k, Int4Storage storage) {
  constexpr int64_t kNoChance = 16;
  const bool by_row = storage == Int4Storage::kRowMajor;
  const int64_t columns = by_row ? scale.shape[1] : scale.shape[0];
  const std::vector<float> scales = to_f32(scale);
  BlankRows blank;
  for (int64_t n = 0; n < part.n; ++n) {
    const uint32_t first = code_at(codes, storage, n, 0);
    int64_t same = 1;
    while (same < k && code_at(codes, storage, n, same) == first) ++same;
    int64_t zeros = 0;
    while (zeros < columns &&
           scales[static_cast<size_t>(by_row ? n * columns + zeros : zeros * part.n + n)] == 0) {
      ++zeros;
    }
    if ((same == k && k >= kNoChance) || zeros == columns) blank.add(n);
  }
  return blank;
}

void warn_of_blank_rows(Checkpoint& checkpoint, const Int4Part& part, int64_t k,
                        const Int4Form& form) {
  const Int4Names names = int4_names(form.storage);
  const TensorView& codes = need(checkpoint, part.name + names.codes, "");
  const TensorView& scale = need(checkpoint, part.name + names.scale, "");
  if (is_constant(codes) || is_constant(scale)) return;  // told of the whole tensor
  const BlankRows blank = blank_rows(codes, scale, part, k, form.storage);
  if (blank.count == 0) return;
  checkpoint.warn(std::string(codes.file) + ": " + codes.name +
                  ": as a matrix [N, K]: " + blank_rows_text(blank, part.n));
}

void resize(Tensor* t, DType type, const Shape& shape) {
  t->resize(type, shape[0], shape[1]);
}

}  // namespace

Int4Names int4_names(Int4Storage storage) noexcept {
  if (storage == Int4Storage::kRowMajor) {
    return {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
            ".weight_shape"};
  }
  return {".qweight", ".scales", ".qzeros", ".g_idx", nullptr};
}

Int4Form int4_form_of(const QuantConfig& quant, const std::string& module, int64_t n, int64_t k,
                      const Checkpoint& checkpoint) {
  const Int4Scheme scheme = quant.int4_scheme_of(module);
  const Int4Names names = int4_names(scheme.storage);
  const int64_t groups = groups_of(scheme.group, k);
  const Shapes shapes = shapes_of(scheme.storage, n, k, groups);
  require(need(checkpoint, module + names.codes, ""), shapes.codes, {FileDType::kI32}, "I32");
  const TensorView& scale = need(checkpoint, module + names.scale, "");
  require(scale, shapes.scale, {FileDType::kF16, FileDType::kBF16, FileDType::kF32},
          "F16, BF16 or F32");
  Int4Form form{.storage = scheme.storage, .group = scheme.group, .scale = scale_type(scale)};
  if (!scheme.symmetric) {
    const TensorView& zeros =
        need(checkpoint, module + names.zero, ", because the weights are not symmetric");
    require(zeros, shapes.zero, {FileDType::kI32}, "I32");
    form.zeros = Int4Zeros::kInteger;
    form.zero_offset = scheme.zero_offset;
  } else if (const TensorView* zeros = checkpoint.find(module + names.zero)) {
    require(*zeros, shapes.zero, {FileDType::kI32}, "I32");
    check_placeholder(quant, *zeros, scheme, n, groups);
  }
  const TensorView* g_idx = checkpoint.find(module + names.g_idx);
  if (g_idx == nullptr && scheme.act_order) {
    need(checkpoint, module + names.g_idx, ", because columns are in activation order");
  }
  // bug log L12: the flag alone does not tell; what the file has counts.
  if (g_idx != nullptr) form.g_idx = read_g_idx(*g_idx, scheme.group, k);
  if (names.shape != nullptr) {
    if (const TensorView* shape = checkpoint.find(module + names.shape)) {
      check_weight_shape(*shape, n, k);
    }
  }
  return form;
}

std::string describe(const Int4Form& form) {
  constexpr const char* kStorages[] = {"gptq", "awq", "compressed-tensors"};
  std::string text = std::string("int4 ") + kStorages[static_cast<int>(form.storage)] + ", group ";
  text += form.group < 0 ? "all of K" : std::to_string(form.group);
  if (form.zeros == Int4Zeros::kSymmetric) {
    text += ", zero 8";
  } else {
    text += form.zero_offset != 0 ? ", zeros 1..16" : ", zeros 0..15";
  }
  text += std::string(", ") + to_string(form.scale) + " scales";
  return text + (form.act_order() ? ", activation order" : "");
}

std::string difference(const Int4Form& x, const Int4Form& y) {
  if (x == y) return {};
  Int4Form same = y;
  same.g_idx = x.g_idx;
  return x == same ? "in another order of columns" : describe(y);
}

HostInt4 take_int4(Checkpoint& checkpoint, const std::vector<Int4Part>& parts, int64_t k,
                   const Int4Form& form, uint64_t* file_bytes) {
  HostInt4 host;
  host.form = form;
  host.k = k;
  for (const Int4Part& part : parts) host.n += part.n;
  const int64_t groups = groups_of(form.group, k);
  const Shapes whole = shapes_of(form.storage, host.n, k, groups);
  resize(&host.codes, DType::kS32, whole.codes);
  resize(&host.scale, form.scale, whole.scale);
  const bool has_zeros = form.zeros == Int4Zeros::kInteger;
  if (has_zeros) resize(&host.zero, DType::kS32, whole.zero);
  const bool by_column = form.storage == Int4Storage::kRowMajor;
  const Int4Names names = int4_names(form.storage);
  int64_t first = 0;
  for (const Int4Part& part : parts) {
    warn_of_blank_rows(checkpoint, part, k, form);
    const auto take = [&](const char* suffix) {
      // Equal zeros are how symmetric files are, one group of all of K has equal indices.
      const bool tells = suffix == names.codes || suffix == names.scale;
      const TensorView t =
          checkpoint.get(part.name + suffix, tells ? Content::kPacked : Content::kIndices);
      *file_bytes += t.bytes;
      return t;
    };
    const auto put = [&](const char* suffix, int64_t at, Tensor* to) {
      place(take(suffix), by_column ? at : 0, by_column ? 0 : at, to);
    };
    const auto taken = [&](const char* suffix) {
      if (suffix != nullptr && checkpoint.contains(part.name + suffix)) (void)take(suffix);
    };
    put(names.codes, form.storage == Int4Storage::kAwq ? first / kNibbles : first, &host.codes);
    put(names.scale, first, &host.scale);
    if (has_zeros) {
      put(names.zero, first / kNibbles, &host.zero);
    } else {
      taken(names.zero);  // looked at by int4_form_of
    }
    taken(names.g_idx);
    taken(names.shape);
    first += part.n;
  }
  return host;
}

Int4Weights HostInt4::view() const {
  return columns(0, n);
}

Int4Weights HostInt4::columns(int64_t first, int64_t count) const {
  const bool by_column = form.storage == Int4Storage::kRowMajor;
  const auto part = [&](const Tensor& t, int64_t at, int64_t size) {
    return by_column ? rows_of(t.view(), at, size) : smoke::columns(t.view(), at, size);
  };
  Int4Weights w;
  w.storage = form.storage;
  w.codes = form.storage == Int4Storage::kAwq ? part(codes, first / kNibbles, words(count))
                                              : part(codes, first, count);
  w.scale = part(scale, first, count);
  if (form.zeros == Int4Zeros::kInteger) {
    w.zero = part(zero, first / kNibbles, words(count));
    w.zero_offset = form.zero_offset;
  }
  if (form.act_order()) {
    w.g_idx = vector_view(form.g_idx.data(), static_cast<int64_t>(form.g_idx.size()));
  }
  return w;
}

size_t HostInt4::bytes() const {
  size_t total = 0;
  for (const Tensor* t : {&codes, &scale, &zero}) {
    total += static_cast<size_t>(t->rows() * t->cols()) * size_of(t->dtype());
  }
  return total;
}

}  // namespace quern::smoke
