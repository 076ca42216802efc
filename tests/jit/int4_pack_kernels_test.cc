// The int4 packers alone, registers poisoned: every code in every nibble of every column, operands
// between pages that fault.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "jit/int4_pack_avx512.h"
#include "tests/jit/kernel_fixture.h"
#include "tests/support/guard_buffer.h"
#include "tests/support/int4_words.h"

namespace quern::jit {
namespace {

using test::Flush;
using test::GuardBuffer;
using test::int4_code_words;
using test::Int4Words;

constexpr int kPadding = 11;  // what checkpoints may hold beyond n and k
constexpr uint8_t kUntouched = 0x5a;

struct Case {
  Int4Storage storage = Int4Storage::kGptq;
  Int4PackBy by = Int4PackBy::kWords;
  int64_t n = 16;
  int64_t k = 128;
  std::vector<int32_t> depths;  ///< by depths
  Flush flush = Flush::kEnd;

  int64_t lines() const {
    return by == Int4PackBy::kWords ? k / 8 : static_cast<int64_t>(depths.size()) / 8;
  }
  int64_t panels() const { return (n + 15) / 16; }
};

std::string text(const Case& c) {
  return to_string(Int4PackAvx512Config{c.storage, c.by}) + " n " + std::to_string(c.n) + " k " +
         std::to_string(c.k);
}

GuardBuffer guarded(const void* from, size_t bytes, Flush flush) {
  GuardBuffer buffer(bytes, flush);
  if (bytes != 0) std::memcpy(buffer.data(), from, bytes);
  buffer.make_read_only();
  return buffer;
}

/// [panel][line], and as much that must stay as it is behind each panel.
std::vector<uint8_t> run(const Kernel& kernel, const Case& c, const Int4Words& words) {
  const auto row_step = static_cast<size_t>(words.cols) * 4;
  const GuardBuffer codes = guarded(words.word.data(), words.word.size() * 4, c.flush);
  const GuardBuffer depths = guarded(c.depths.data(), c.depths.size() * 4, c.flush);
  const auto panel_bytes = static_cast<size_t>(c.lines()) * 64;
  GuardBuffer to(2 * panel_bytes * static_cast<size_t>(c.panels()) - panel_bytes, c.flush);
  std::memset(to.data(), kUntouched, to.size());
  Int4PackArgs args;
  args.row_step = static_cast<int64_t>(row_step);
  args.depths = reinterpret_cast<const int32_t*>(depths.data());
  args.to_step = static_cast<int64_t>(2 * panel_bytes);
  args.lines = c.lines();
  const bool rows = c.storage == Int4Storage::kRowMajor;
  int64_t panel = 0;
  while (panel < c.panels()) {
    const int64_t whole = c.n / 16 - panel;
    args.panels = rows || whole == 0 ? 1 : whole;
    args.columns = std::min<int64_t>(16, c.n - 16 * panel);
    args.to = to.data() + 2 * panel_bytes * static_cast<size_t>(panel);
    const void* column[16];
    for (int64_t i = 0; rows && i < 16; ++i) {
      const auto row = static_cast<size_t>(16 * panel + std::min(i, args.columns - 1));
      column[i] = codes.data() + row * row_step;
    }
    const GuardBuffer columns = guarded(column, sizeof column, c.flush);
    args.column = reinterpret_cast<const void* const*>(columns.data());
    const int64_t word = c.storage == Int4Storage::kAwq ? 2 * panel : 16 * panel;
    if (!rows) args.words = codes.data() + 4 * word;
    kernel.call(args);
    panel += args.panels;
  }
  EXPECT_TRUE(to.slack_intact());
  return {to.data(), to.data() + to.size()};
}

/// Depth r of eight is in nibble kPlace[r] of its line.
constexpr int kPlace[8] = {0, 4, 2, 6, 1, 5, 3, 7};

uint32_t packed_code(const std::vector<uint8_t>& panels, const Case& c, int64_t n, int64_t depth) {
  const int64_t line = 2 * c.lines() * (n / 16) + depth / 8;
  uint32_t word;
  std::memcpy(&word, panels.data() + line * 64 + n % 16 * 4, 4);
  return word >> (4 * kPlace[depth % 8]) & 15;
}

class Int4PackKernels : public KernelTest {
 protected:
  /// `codes` [n, k].
  void check(const Case& c, const std::vector<uint8_t>& codes) {
    const KernelHandle kernel = make(Int4PackAvx512Config{c.storage, c.by, true});
    ASSERT_NE(kernel, nullptr);
    const Int4Words words = int4_code_words(c.storage, codes, c.n, c.k, kPadding);
    const std::vector<uint8_t> got = run(*kernel, c, words);
    for (int64_t n = 0; n < 16 * c.panels(); ++n) {
      for (int64_t d = 0; d < 8 * c.lines(); ++d) {
        const int64_t k = c.by == Int4PackBy::kWords ? d : c.depths[static_cast<size_t>(d)];
        const bool exists = n < c.n && k >= 0;
        const uint32_t want = exists ? codes[static_cast<size_t>(n * c.k + k)] : 0;
        ASSERT_EQ(packed_code(got, c, n, d), want) << text(c) << ": column " << n << " depth " << d;
      }
    }
    const auto panel = static_cast<size_t>(c.lines()) * 64;
    for (size_t at = panel; at < got.size(); at += 2 * panel) {
      const auto first = got.begin() + static_cast<std::ptrdiff_t>(at);
      ASSERT_EQ(std::count(first, first + static_cast<std::ptrdiff_t>(panel), kUntouched),
                static_cast<std::ptrdiff_t>(panel))
          << text(c) << ": wrote beyond its panel";
    }
  }
};

struct Kind {
  Int4Storage storage;
  Int4PackBy by;
};
constexpr Kind kKinds[] = {{Int4Storage::kGptq, Int4PackBy::kWords},
                           {Int4Storage::kGptq, Int4PackBy::kDepths},
                           {Int4Storage::kAwq, Int4PackBy::kDepths},
                           {Int4Storage::kRowMajor, Int4PackBy::kWords},
                           {Int4Storage::kRowMajor, Int4PackBy::kDepths}};

/// 0.. k - 1, and -1 up to a whole line.
std::vector<int32_t> ascending(int64_t k) {
  std::vector<int32_t> depths;
  for (int32_t i = 0; i < k; ++i) depths.push_back(i);
  depths.resize(static_cast<size_t>(k + 7) / 8 * 8, -1);
  return depths;
}

std::vector<uint8_t> random_codes(int64_t count, Numbers* numbers) {
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < count; ++i) codes.push_back(static_cast<uint8_t>(numbers->next() % 16));
  return codes;
}

TEST_F(Int4PackKernels, LiteralWord) {
  // One word a column in ascending nibbles 0, 1, .. 7.
  for (const Kind& kind : kKinds) {
    Case c{kind.storage, kind.by, 1, 8, ascending(8)};
    const KernelHandle kernel = make(Int4PackAvx512Config{c.storage, c.by, true});
    const Int4Words words = int4_code_words(c.storage, {0, 1, 2, 3, 4, 5, 6, 7}, 1, 8);
    const std::vector<uint8_t> got = run(*kernel, c, words);
    const std::vector<uint8_t> want = {0x40, 0x62, 0x51, 0x73};
    EXPECT_EQ(std::vector<uint8_t>(got.begin(), got.begin() + 4), want) << text(c);
  }
}

// 16 words of each column: nibble j of column n goes through all codes.
TEST_F(Int4PackKernels, EveryCodeInEveryNibbleOfEveryColumn) {
  for (const Kind& kind : kKinds) {
    for (int64_t n = 1; n <= 49; ++n) {
      Case c{kind.storage, kind.by, n, 128, ascending(128)};
      std::vector<uint8_t> codes;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t k = 0; k < 128; ++k) {
          codes.push_back(static_cast<uint8_t>((k / 8 + 3 * k + 5 * i) % 16));
        }
      }
      for (const Flush flush : {Flush::kEnd, Flush::kStart}) {
        c.flush = flush;
        ASSERT_NO_FATAL_FAILURE(check(c, codes));
      }
    }
  }
}

TEST_F(Int4PackKernels, EveryTailOfKAndN) {
  Numbers numbers(11);
  for (const Kind& kind : kKinds) {
    for (int64_t k = 1; k <= 300; k = k < 40 ? k + 1 : k + 13) {
      if (kind.by == Int4PackBy::kWords && k < 8) continue;
      for (const int64_t n : {1, 7, 8, 9, 15, 16, 17, 24, 41}) {
        const Case c{kind.storage, kind.by, n, k, ascending(k)};
        ASSERT_NO_FATAL_FAILURE(check(c, random_codes(n * k, &numbers)));
      }
    }
  }
}

// As act_order and groups that are no multiple of eight have them; whole lines without a depth too.
TEST_F(Int4PackKernels, DepthsInAnyOrder) {
  Numbers numbers(12);
  for (const Kind& kind : kKinds) {
    if (kind.by == Int4PackBy::kWords) continue;
    for (int i = 0; i < 200; ++i) {
      const auto k = static_cast<int64_t>(1 + numbers.next() % 90);
      const auto n = static_cast<int64_t>(1 + numbers.next() % 40);
      Case c{kind.storage, kind.by, n, k, {}};
      const size_t lines = 1 + numbers.next() % 12;
      const bool empty = numbers.next() % 8 == 0;
      for (size_t d = 0; d < 8 * lines; ++d) {
        const bool none = empty || numbers.next() % 5 == 0;
        const auto any = static_cast<int32_t>(numbers.next() % static_cast<uint64_t>(k));
        c.depths.push_back(none ? -1 : any);
      }
      c.flush = i % 2 == 0 ? Flush::kEnd : Flush::kStart;
      ASSERT_NO_FATAL_FAILURE(check(c, random_codes(n * k, &numbers)));
    }
  }
}

// Rows of words, or columns, more than 2^32 bytes apart.
TEST_F(Int4PackKernels, FarApart) {
  constexpr int64_t kStep = (int64_t{1} << 32) + 4096;
  const test::SparseBuffer far(static_cast<size_t>(kStep) * 16 + 4096);
  if (far.data() == nullptr) GTEST_SKIP() << "not run: no address space";
  for (const Kind& kind : kKinds) {
    const bool rows = kind.storage == Int4Storage::kRowMajor;
    const int32_t depths[8] = {8, 0, -1, -1, -1, -1, -1, -1};
    std::vector<uint32_t> line(32, 0);
    const void* column[16];
    for (int64_t i = 0; i < 16; ++i) {
      const uint32_t words[2] = {0x11111111u, 0x22222222u};
      if (rows || i < 9) std::memset(far.data() + kStep * i, 0, 64);
      if (rows) std::memcpy(far.data() + kStep * i, words, 8);
      column[i] = far.data() + kStep * i;
    }
    if (!rows) {  // depth 0 and 8; by words 0 and 8 are rows 0 and 1 of GPTQ
      std::memset(far.data(), 0x11, 64);
      std::memset(far.data() + kStep, 0x22, 64);
      std::memset(far.data() + kStep * 8, 0x22, 64);
    }
    Int4PackArgs args;
    args.words = far.data();
    args.row_step = kStep;
    args.column = column;
    args.depths = depths;
    args.to = line.data();
    args.lines = kind.by == Int4PackBy::kWords ? 2 : 1;
    args.panels = 1;
    args.columns = 16;
    make(Int4PackAvx512Config{kind.storage, kind.by, true})->call(args);
    for (size_t c = 0; c < 16; ++c) {
      if (kind.by == Int4PackBy::kWords) {
        ASSERT_EQ(line[c], 0x11111111u);
        ASSERT_EQ(line[16 + c], 0x22222222u);
      } else {
        ASSERT_EQ(line[c], 0x00010002u) << to_string(Int4PackAvx512Config{kind.storage, kind.by});
      }
    }
  }
}

}  // namespace
}  // namespace quern::jit
