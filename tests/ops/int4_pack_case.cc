#include "tests/ops/int4_pack_case.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/support/int4_words.h"

namespace quern::test {
namespace {

constexpr uint8_t kPadding = 13;  // nibbles beyond n and k
constexpr int64_t kColumns = 16;  // of a panel

/// Depth r of a line of eight is nibble kPlace[r] of its words.
constexpr int64_t kPlace[8] = {0, 4, 2, 6, 1, 5, 3, 7};

int64_t eighths(int64_t x) {
  return (x + 7) / 8;
}

int64_t group_of(const Int4PackSpec& spec) {
  return spec.group < 0 ? spec.k : std::min(spec.group, spec.k);
}

int64_t padded_of(const Int4PackSpec& spec) {
  const int64_t group = group_of(spec);
  if (group == 0) return 0;
  const int64_t tiles = (group + 63) / 64;
  return tiles * eighths((group + tiles - 1) / tiles) * 8;
}

/// A packed group: whose scale and zero, and its columns of K.
struct PackedGroup {
  int64_t stored;
  std::vector<int64_t> columns;
};

std::vector<PackedGroup> packed_groups(const Int4PackCase& c) {
  std::map<int64_t, std::vector<int64_t>> members;
  const int64_t group = group_of(c.spec);
  for (int64_t k = 0; k < c.spec.k; ++k) {
    const bool ordered = c.spec.act_order;
    members[ordered ? c.parts[0].g_idx[static_cast<size_t>(k)] : k / group].push_back(k);
  }
  std::vector<PackedGroup> out;
  for (const auto& [stored, columns] : members) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i % static_cast<size_t>(group) == 0) out.push_back({stored, {}});
      out.back().columns.push_back(columns[i]);
    }
  }
  return out;
}

template <typename T>
T at(const void* base, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + i * int64_t{sizeof(T)}, sizeof value);
  return value;
}

/// Compares numbers and says which differ.
class Expect {
 public:
  template <typename T, typename U>
  bool equal(T got, U want, const char* what, int64_t i = 0, int64_t j = 0) {
    if (result_ && got != want) {
      result_ = ::testing::AssertionFailure()
                << what << ' ' << i << ' ' << j << ": " << static_cast<int64_t>(got)
                << ", expected " << static_cast<int64_t>(want);
    }
    return result_;
  }
  const ::testing::AssertionResult& result() const { return result_; }

 private:
  ::testing::AssertionResult result_ = ::testing::AssertionSuccess();
};

/// One part of packed weights, panel by panel.
class Checker {
 public:
  Checker(const PackedWeights& w, const Int4PackCase& c, std::vector<PackedGroup> groups)
      : w_(w), c_(c), groups_(std::move(groups)), padded_(padded_of(c.spec)) {}

  ::testing::AssertionResult check() {
    const auto panels = static_cast<int64_t>(c_.parts.size()) * ((c_.spec.n + 15) / 16);
    check_geometry(panels);
    for (int64_t p = 0; p < panels && expect_.result(); ++p) {
      const auto parts = static_cast<int64_t>(c_.parts.size());
      check_panel(p, c_.parts[static_cast<size_t>(p % parts)], p / parts * kColumns);
    }
    return expect_.result();
  }

 private:
  void check_geometry(int64_t panels) {
    const auto groups = static_cast<int64_t>(groups_.size());
    const int64_t depth = groups * padded_;
    const int64_t cells = panels * groups * kColumns;
    expect_.equal(w_.panel_bytes(), depth / 8 * 64, "panel_bytes");
    expect_.equal(w_.groups(), groups, "groups");
    expect_.equal(w_.group(), group_of(c_.spec), "group");
    expect_.equal(w_.layout() == WeightLayout::kU4Vnni8N16GateUp, c_.parts.size() == 2, "layout");
    const auto* base = w_.data();
    int64_t end = panels * w_.panel_bytes();
    const auto section = [&](const void* data, int64_t bytes, const char* what) {
      expect_.equal(static_cast<const std::byte*>(data) - base, end, what);
      for (end += bytes; end % 64 != 0; ++end) expect_.equal(at<uint8_t>(base, end), 0, what, end);
    };
    section(w_.group_scales(), cells * static_cast<int64_t>(size_of(c_.spec.scale)), "scales");
    if (c_.spec.zeros != Int4Zeros::kSymmetric) {
      section(w_.group_zeros(), cells * (c_.spec.zeros == Int4Zeros::kF32 ? 4 : 1), "zeros");
    }
    if (c_.spec.act_order) {  // mapped weights have a copy of theirs
      const auto* const order = reinterpret_cast<const std::byte*>(w_.order());
      const bool copied = order < base || order >= base + w_.bytes();
      section(copied ? base + end : order, 4 * depth, "order");
    }
    expect_.equal(static_cast<int64_t>(w_.bytes()), end, "bytes");
    for (int64_t d = 0; d < depth && c_.spec.act_order; ++d) {
      expect_.equal(w_.order()[d], column_at(d), "order at", d);
    }
  }

  /// The column of K at a padded depth, or -1.
  int64_t column_at(int64_t depth) const {
    const PackedGroup& group = groups_[static_cast<size_t>(depth / padded_)];
    const auto r = static_cast<size_t>(depth % padded_);
    return r < group.columns.size() ? group.columns[r] : -1;
  }

  void check_panel(int64_t p, const Int4Matrix& m, int64_t first) {
    const auto groups = static_cast<int64_t>(groups_.size());
    for (int64_t d = 0; d < groups * padded_; ++d) {
      const int64_t k = column_at(d);
      for (int64_t c = 0; c < kColumns; ++c) {
        const int64_t n = first + c;
        const auto word = at<uint32_t>(w_.data() + p * w_.panel_bytes(), d / 8 * kColumns + c);
        const uint32_t got = word >> (4 * kPlace[d % 8]) & 15;
        const bool exists = n < c_.spec.n && k >= 0;
        const uint32_t want = exists ? m.codes[static_cast<size_t>(n * c_.spec.k + k)] : 0;
        if (!expect_.equal(got, want, "code of column, depth", n, d)) return;
      }
    }
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t c = 0; c < kColumns; ++c)
        check_group(m, (p * groups + g) * kColumns + c, first + c, g);
    }
  }

  void check_group(const Int4Matrix& m, int64_t cell, int64_t n, int64_t g) {
    const bool exists = n < c_.spec.n;
    const auto i =
        static_cast<size_t>(exists ? n * m.groups + groups_[static_cast<size_t>(g)].stored : 0);
    const uint32_t scale = exists ? m.scales[i] : 0;
    if (size_of(c_.spec.scale) == 4) {
      expect_.equal(at<uint32_t>(w_.group_scales(), cell), scale, "scale of column, group", n, g);
    } else {
      expect_.equal(at<uint16_t>(w_.group_scales(), cell), scale, "scale of column, group", n, g);
    }
    if (c_.spec.zeros == Int4Zeros::kInteger) {
      const int want = exists ? m.nibbles[i] + m.zero_offset : 0;
      expect_.equal(at<uint8_t>(w_.group_zeros(), cell), want, "zero of column, group", n, g);
    } else if (c_.spec.zeros == Int4Zeros::kF32) {
      const float want = exists ? m.zeros[i] : 0;
      expect_.equal(at<float>(w_.group_zeros(), cell), want, "zero of column, group", n, g);
    }
  }

  const PackedWeights& w_;
  const Int4PackCase& c_;
  std::vector<PackedGroup> groups_;
  int64_t padded_;
  Expect expect_;
};

/// [n, groups] to what a storage has of scales: its own order, elements of `size` bytes.
std::vector<std::byte> by_group(const std::vector<uint32_t>& bits, int64_t n, int64_t groups,
                                bool row_major, size_t size) {
  std::vector<std::byte> out(bits.size() * size);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t to = row_major ? i * groups + g : g * n + i;
      std::memcpy(out.data() + to * static_cast<int64_t>(size),
                  &bits[static_cast<size_t>(i * groups + g)], size);
    }
  }
  return out;
}

}  // namespace

Int4Matrix::Int4Matrix(const Int4PackSpec& spec, Int4Storage storage, std::vector<int32_t> index,
                       Rng* rng)
    : g_idx(std::move(index)), spec_(spec), storage_(storage) {
  const int64_t group = group_of(spec);
  groups = group == 0 ? 0 : (spec.k + group - 1) / group;
  for (const int32_t g : g_idx) groups = std::max<int64_t>(groups, g + 1);
  const auto cells = static_cast<size_t>(spec.n * groups);
  codes.resize(static_cast<size_t>(spec.n * spec.k));
  for (uint8_t& x : codes) x = static_cast<uint8_t>(rng->in(0, 15));
  nibbles.resize(cells);
  for (uint8_t& x : nibbles) x = static_cast<uint8_t>(rng->in(0, 15));
  zeros.resize(cells);
  for (float& x : zeros) x = rng->unit() * 20;
  scales.resize(cells);
  // Any bits: NaN, infinities and subnormals have to come through.
  const uint32_t mask = size_of(spec.scale) == 4 ? 0xffffffffu : 0xffffu;
  for (uint32_t& x : scales) x = static_cast<uint32_t>(rng->next()) & mask;
}

/// What lies between rows may hold anything; behind the last row there is nothing.
MatrixView Int4Matrix::guard(const void* from, DType type, int64_t rows, int64_t cols) {
  const int64_t stride = cols + stride_slack;
  const auto size = static_cast<int64_t>(size_of(type));
  const int64_t elements = rows == 0 ? 0 : (rows - 1) * stride + cols;
  GuardBuffer buffer(static_cast<size_t>(elements * size), flush);
  for (int64_t r = 0; r < rows && cols > 0; ++r) {
    const auto bytes = static_cast<size_t>(cols * size);
    std::memset(buffer.data() + r * stride * size, 0xee,
                static_cast<size_t>((r + 1 < rows ? stride : cols) * size));
    std::memcpy(buffer.data() + r * stride * size,
                static_cast<const std::byte*>(from) + r * cols * size, bytes);
  }
  buffer.make_read_only();
  const MatrixView view{buffer.data(), type, rows, cols, stride};
  operands_.push_back(std::move(buffer));
  return view;
}

Int4Weights Int4Matrix::store() {
  operands_.clear();
  const bool row_major = storage_ == Int4Storage::kRowMajor;
  const auto numbers = [&](const std::vector<uint32_t>& bits, DType type) {
    const auto bytes = by_group(bits, spec_.n, groups, row_major, size_of(type));
    return guard(bytes.data(), type, row_major ? spec_.n : groups, row_major ? groups : spec_.n);
  };
  const auto words = [&](const Int4Words& w) {
    return guard(w.word.data(), DType::kS32, w.rows, w.cols);
  };
  Int4Weights w;
  w.storage = storage_;
  w.codes = words(int4_code_words(storage_, codes, spec_.n, spec_.k, kPadding));
  w.scale = numbers(scales, spec_.scale);
  if (spec_.zeros == Int4Zeros::kInteger) {
    w.zero = words(int4_zero_words(storage_, nibbles, spec_.n, groups, kPadding));
    w.zero_offset = zero_offset;
  } else if (spec_.zeros == Int4Zeros::kF32) {
    std::vector<uint32_t> bits(zeros.size());
    if (!bits.empty()) std::memcpy(bits.data(), zeros.data(), zeros.size() * 4);
    w.zero = numbers(bits, DType::kF32);
  }
  if (spec_.act_order) {
    const MatrixView index = guard(g_idx.data(), DType::kS32, 1, spec_.k);
    w.g_idx = {index.data, DType::kS32, spec_.k};
  }
  return w;
}

std::string Int4PackCase::text() const {
  std::string s = "n " + std::to_string(spec.n) + " k " + std::to_string(spec.k) + " group " +
                  std::to_string(spec.group) + " zeros " +
                  std::to_string(static_cast<int>(spec.zeros)) + ' ' + to_string(spec.scale);
  if (spec.act_order) s += " act_order";
  return s + " parts " + std::to_string(parts.size());
}

Int4PackCase random_int4_case(uint64_t seed) {
  Rng rng(seed);
  Int4PackCase c;
  Int4PackSpec& spec = c.spec;
  constexpr int64_t kGroups[] = {16, 24, 32, 48, 64, 100, 128, -1, 1, 7, 8, 72, 80, 130};
  spec.n = rng.one_in(3) ? rng.in(1, 8) * 16 : rng.in(1, 90);
  spec.k = rng.one_in(3) ? rng.in(1, 8) * 64 : rng.in(1, 300);
  spec.group = rng.pick(kGroups);
  spec.zeros = static_cast<Int4Zeros>(rng.in(0, 2));
  spec.scale = rng.pick(std::vector{DType::kF16, DType::kBF16, DType::kF32});
  spec.act_order = rng.one_in(3);
  std::vector<int32_t> g_idx;
  if (spec.act_order) {
    // Sizes that differ, and numbers without a column.
    const int64_t most = group_of(spec);
    const int64_t groups = (spec.k + most - 1) / most;
    for (int64_t k = 0; k < spec.k; ++k) {
      const int64_t g = rng.in(0, groups - 1);
      g_idx.push_back(static_cast<int32_t>(rng.one_in(2) ? g : g / 2));
    }
  }
  const int64_t parts = rng.in(1, 2);
  const auto storage = static_cast<Int4Storage>(rng.in(0, 2));
  for (int64_t i = 0; i < parts; ++i) {
    const bool other = rng.one_in(5);
    c.parts.emplace_back(spec, other ? static_cast<Int4Storage>(rng.in(0, 2)) : storage, g_idx,
                         &rng);
    c.parts.back().zero_offset = static_cast<int32_t>(rng.in(0, 1));
    c.parts.back().stride_slack = rng.one_in(2) ? 0 : rng.in(1, 5);
    c.parts.back().flush = rng.one_in(2) ? Flush::kEnd : Flush::kStart;
  }
  return c;
}

Result<PackedWeights> pack(const Context& ctx, ThreadPool& pool, Int4PackCase* c,
                           const PackProgress& progress) {
  const auto kernels = int4_pack_kernels(ctx.impl());
  if (!kernels.ok()) return kernels.status();
  std::vector<Int4Weights> parts;
  for (Int4Matrix& m : c->parts) {
    parts.push_back(m.store());
    const auto part = c->parts.size() == 1 ? WeightPart::kOnly
                      : parts.size() == 1  ? WeightPart::kGate
                                           : WeightPart::kUp;
    if (const Status s = check_int4_weights(parts.back(), c->spec, part); !s.ok()) return s;
  }
  return pack_int4(*kernels, pool, c->spec, {parts.data(), parts.size()}, progress);
}

::testing::AssertionResult is_packed(const PackedWeights& w, const Int4PackCase& c) {
  return Checker(w, c, packed_groups(c)).check() << ' ' << c.text();
}

std::vector<uint8_t> bytes_of(const PackedWeights& w) {
  const auto* first = reinterpret_cast<const uint8_t*>(w.data());
  return {first, first + w.bytes()};
}

}  // namespace quern::test
