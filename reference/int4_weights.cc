#include "reference/int4_weights.h"

#include <algorithm>

#include "reference/numeric.h"
#include "reference/shape_check.h"

namespace quern::reference {
namespace {

/// Nibble j of AWQ's words is this one of their eight columns.
constexpr int64_t kAwqColumn[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/// Where a storage keeps one number: the word and the nibble in it.
struct Place {
  int64_t row;
  int64_t col;
  int64_t nibble;
};

int64_t awq_nibble_of(int64_t column) {
  return std::find(kAwqColumn, kAwqColumn + 8, column % 8) - kAwqColumn;
}

Place code_place(Int4Storage storage, int64_t n, int64_t k) {
  switch (storage) {
    case Int4Storage::kGptq:
      return {k / 8, n, k % 8};
    case Int4Storage::kAwq:
      return {k, n / 8, awq_nibble_of(n)};
    case Int4Storage::kRowMajor:
      return {n, k / 8, k % 8};
  }
  return {};
}

Place zero_place(Int4Storage storage, int64_t n, int64_t group) {
  switch (storage) {
    case Int4Storage::kGptq:
      return {group, n / 8, n % 8};
    case Int4Storage::kAwq:
      return {group, n / 8, awq_nibble_of(n)};
    case Int4Storage::kRowMajor:
      return {n / 8, group, n % 8};
  }
  return {};
}

uint32_t nibble(const MatrixView& words, const Place& p) {
  const auto word = static_cast<uint32_t>(static_cast<int64_t>(load(words, p.row, p.col)));
  return (word >> (4 * p.nibble)) & 15u;
}

/// Scales, and zeros that are floats: a row for each group, or a row for each column of C.
float group_number(Int4Storage storage, const MatrixView& m, int64_t n, int64_t group) {
  return static_cast<float>(storage == Int4Storage::kRowMajor ? load(m, n, group)
                                                              : load(m, group, n));
}

int64_t group_columns(const Int4GemmDesc& desc) {
  return desc.group < 0 ? desc.k : std::min(desc.group, desc.k);
}

int64_t eighths(int64_t x) {
  return (x + 7) / 8;
}

Status expect_shape(const MatrixView& m, int64_t rows, int64_t cols, const char* text) {
  return expect(m.rows == rows && m.cols == cols, text, rows, cols);
}

/// With g_idx there are as many: it says which columns a group has, not how many groups there are.
int64_t stored_groups(const Int4GemmDesc& desc) {
  const int64_t columns = group_columns(desc);
  return columns == 0 ? 0 : (desc.k + columns - 1) / columns;
}

Status check_zeros(const Int4Weights& w, const Int4GemmDesc& desc, int64_t groups) {
  const bool by_column = w.storage == Int4Storage::kRowMajor;
  if (desc.zeros == Int4Zeros::kSymmetric) return Status();
  if (desc.zeros == Int4Zeros::kF32) {
    const Status s = expect(w.zero.dtype == DType::kF32, "weights.zero must be f32", 0, 0);
    if (!s.ok()) return s;
    return expect_shape(w.zero, by_column ? desc.n : groups, by_column ? groups : desc.n,
                        "weights.zero must be f32 [{0}, {1}]");
  }
  const Status s = expect(w.zero.dtype == DType::kS32, "weights.zero must be s32 words", 0, 0);
  if (!s.ok()) return s;
  return expect_shape(w.zero, by_column ? eighths(desc.n) : groups,
                      by_column ? groups : eighths(desc.n), "weights.zero must be s32 [{0}, {1}]");
}

Status check_g_idx(const VectorView& g_idx, int64_t k, int64_t groups) {
  Status s = expect(g_idx.size == k && g_idx.dtype == DType::kS32,
                    "weights.g_idx must be s32 [desc.k ({0})]", k, 0);
  for (int64_t i = 0; s.ok() && i < k; ++i) {
    const auto g = static_cast<int64_t>(load(g_idx, i));
    s = expect(g >= 0 && g < groups, "weights.g_idx holds group {0} of {1}", g, groups);
  }
  return s;
}

}  // namespace

float Int4Values::weight(int64_t row, int64_t col) const {
  const int64_t g = group_of[static_cast<size_t>(col)];
  const float difference =
      static_cast<float>(code[static_cast<size_t>(row * k + col)]) - zero_at(row, g);
  return difference * scale_at(row, g);
}

Status check_int4_weights(const Int4Weights& w, const Int4GemmDesc& desc) {
  const int64_t n = desc.n, k = desc.k;
  const int64_t groups = stored_groups(desc);
  const bool by_column = w.storage == Int4Storage::kRowMajor;
  Status s = expect(desc.group == -1 || desc.group >= 1, "desc.group ({0}) must be -1 or positive",
                    desc.group, 0);
  if (s.ok()) s = expect(w.codes.dtype == DType::kS32, "weights.codes must be s32 words", 0, 0);
  if (s.ok() && w.storage == Int4Storage::kGptq) {
    s = expect_shape(w.codes, eighths(k), n, "weights.codes must be s32 [{0}, {1}]");
  } else if (s.ok()) {
    s = expect_shape(w.codes, by_column ? n : k, eighths(by_column ? k : n),
                     "weights.codes must be s32 [{0}, {1}]");
  }
  if (s.ok()) {
    s = expect(w.scale.dtype == desc.scale, "weights.scale must be of desc.scale's type", 0, 0);
  }
  if (s.ok()) {
    s = expect_shape(w.scale, by_column ? n : groups, by_column ? groups : n,
                     "weights.scale must be [{0}, {1}]");
  }
  if (s.ok()) s = check_zeros(w, desc, groups);
  if (s.ok() && desc.act_order) s = check_g_idx(w.g_idx, k, groups);
  return s;
}

Int4Values int4_values(const Int4Weights& w, const Int4GemmDesc& desc) {
  Int4Values v;
  v.n = desc.n;
  v.k = desc.k;
  v.groups = stored_groups(desc);
  for (int64_t k = 0; k < v.k; ++k) {
    v.group_of.push_back(static_cast<int32_t>(
        desc.act_order ? static_cast<int64_t>(load(w.g_idx, k)) : k / group_columns(desc)));
  }
  for (int64_t n = 0; n < v.n; ++n) {
    for (int64_t k = 0; k < v.k; ++k) {
      v.code.push_back(static_cast<uint8_t>(nibble(w.codes, code_place(w.storage, n, k))));
    }
    for (int64_t g = 0; g < v.groups; ++g) {
      v.scale.push_back(group_number(w.storage, w.scale, n, g));
      float zero = 8;
      if (desc.zeros == Int4Zeros::kInteger) {
        const auto stored = static_cast<int32_t>(nibble(w.zero, zero_place(w.storage, n, g)));
        zero = static_cast<float>(stored + w.zero_offset);
      } else if (desc.zeros == Int4Zeros::kF32) {
        zero = group_number(w.storage, w.zero, n, g);
      }
      v.zero.push_back(zero);
    }
  }
  return v;
}

std::vector<Int4Run> int4_runs(const Int4Values& values, const Int4GemmDesc& desc) {
  const auto most = static_cast<size_t>(group_columns(desc));
  std::vector<Int4Run> runs;
  for (int64_t g = 0; g < values.groups; ++g) {
    Int4Run run{g, {}};
    for (int64_t k = 0; k < values.k; ++k) {
      if (values.group_of[static_cast<size_t>(k)] != g) continue;
      if (run.columns.size() == most) {
        runs.push_back(run);
        run.columns.clear();
      }
      run.columns.push_back(k);
    }
    if (!run.columns.empty()) runs.push_back(run);
  }
  return runs;
}

}  // namespace quern::reference
