#include "ops/int4_order.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace quern::inline v0 {
namespace {

void append(const Int4Lines& lines, std::vector<Int4Lines>* out) {
  if (lines.count == 0) return;
  if (!out->empty()) {
    Int4Lines& last = out->back();
    const bool goes_on =
        last.words == lines.words && (!lines.words || last.word + last.count == lines.word);
    if (goes_on) {
      last.count += lines.count;
      return;
    }
  }
  out->push_back(lines);
}

/// A word can be kept where a group begins with one, and all its columns exist.
void find_words(const GroupLayout& layout, std::vector<Int4Lines>* out) {
  const int64_t lines = layout.padded / GroupLayout::kLineDepth;
  for (int64_t g = 0; g < layout.groups; ++g) {
    const int64_t column = g * layout.group;
    const int64_t columns = std::min(layout.group, layout.k - column);
    const int64_t whole = columns / GroupLayout::kLineDepth;
    append({true, g * lines, whole, column / GroupLayout::kLineDepth}, out);
    append({false, g * lines + whole, lines - whole, 0}, out);
  }
}

}  // namespace

int32_t g_idx_at(const VectorView& g_idx, int64_t column) noexcept {
  int32_t g;
  std::memcpy(&g, static_cast<const std::byte*>(g_idx.data) + 4 * column, sizeof g);
  return g;
}

Int4Order int4_order(int64_t k, int64_t group) {
  Int4Order order;
  order.layout = GroupLayout(k, group);
  const GroupLayout& layout = order.layout;
  order.depths.assign(static_cast<size_t>(layout.depth()), -1);
  order.stored.resize(static_cast<size_t>(layout.groups));
  for (int64_t column = 0; column < k; ++column) {
    const int64_t g = column / layout.group;
    const int64_t depth = g * layout.padded + column % layout.group;
    order.depths[static_cast<size_t>(depth)] = static_cast<int32_t>(column);
    order.stored[static_cast<size_t>(g)] = static_cast<int32_t>(g);
  }
  append({false, 0, layout.depth() / GroupLayout::kLineDepth, 0}, &order.by_depths);
  const bool words = layout.groups == 1 || layout.group % GroupLayout::kLineDepth == 0;
  if (words) {
    find_words(layout, &order.by_words);
  } else {
    order.by_words = order.by_depths;
  }
  return order;
}

Int4Order int4_order(int64_t k, int64_t group, const VectorView& g_idx) {
  Int4Order order;
  // Group and column in one number: sorting it is stable.
  std::vector<int64_t> sorted(static_cast<size_t>(k));
  for (int64_t column = 0; column < k; ++column) {
    const auto g = static_cast<int64_t>(g_idx_at(g_idx, column));
    sorted[static_cast<size_t>(column)] = g << 32 | column;
  }
  std::sort(sorted.begin(), sorted.end());
  const GroupLayout one(k, group);
  int64_t in_group = 0;
  for (const int64_t entry : sorted) {
    const auto g = static_cast<int32_t>(entry >> 32);
    if (order.stored.empty() || order.stored.back() != g || in_group == one.group) {
      order.stored.push_back(g);
      order.depths.resize(order.stored.size() * static_cast<size_t>(one.padded), -1);
      in_group = 0;
    }
    const size_t first = order.depths.size() - static_cast<size_t>(one.padded);
    order.depths[first + static_cast<size_t>(in_group)] = static_cast<int32_t>(entry);
    ++in_group;
  }
  order.layout = GroupLayout(k, group, static_cast<int64_t>(order.stored.size()));
  append({false, 0, order.layout.depth() / GroupLayout::kLineDepth, 0}, &order.by_depths);
  order.by_words = order.by_depths;
  return order;
}

}  // namespace quern::inline v0
