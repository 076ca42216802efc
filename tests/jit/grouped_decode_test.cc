// The decoding of panels alone, registers poisoned: every code in every place, operands
// between pages that fault.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "jit/grouped_decode_avx512.h"
#include "tests/jit/grouped_call.h"
#include "tests/jit/kernel_fixture.h"

namespace quern::jit {
namespace {

using test::Flush;
using test::GuardBuffer;

constexpr unsigned char kUntouched = 0x5a;

constexpr DType kFloats[] = {DType::kE4M3, DType::kE5M2, DType::kE2M1};

class GroupedDecode : public KernelTest {
 protected:
  /// Groups from..to - 1 of all panels of the block, against what the block says they are. Between
  /// the panels lies as much again that must stay as it is.
  void check(const GroupedBlock& block, DType to_type, int from, int to, int64_t ahead,
             Flush flush) {
    for (const bool vbmi : {true, false}) {
      if (vbmi && is_float8(block.codes) && !features_.vbmi) continue;
      GroupedDecodeAvx512Config config{to_type, block.config.zeros, true, block.codes, vbmi};
      if (to_type == DType::kU8) config.zeros = Int4Zeros::kSymmetric;
      if (invalid(config) == nullptr) check(config, block, from, to, ahead, flush);
    }
  }

  void check(const GroupedDecodeAvx512Config& config, const GroupedBlock& block, int from, int to,
             int64_t ahead, Flush flush) {
    const DType to_type = config.to;
    const bool quads = to_type != DType::kBF16;
    const KernelHandle kernel = make(config);
    ASSERT_NE(kernel, nullptr);
    const GuardBuffer b = guarded(block.packed(), flush);
    const GuardBuffer zero = guarded(block.zeros(kGap), flush);
    const int depths = 32 / bits_of(block.codes);
    const auto line_bytes = static_cast<size_t>(16 * depths * (quads ? 1 : 2));
    const auto group_lines = static_cast<size_t>(block.padded / depths);
    const size_t bytes = static_cast<size_t>(to - from) * group_lines * line_bytes;
    const auto panels = static_cast<size_t>(block.panels);
    GuardBuffer out((2 * panels - 1) * bytes, flush);
    std::memset(out.data(), kUntouched, out.size());
    GroupedDecodeArgs args;
    args.b = b.data() + static_cast<size_t>(from) * group_lines * 64;
    args.panel_stride = block.depth() / depths * 64;
    args.panels = block.panels;
    args.groups = to - from;
    args.group_lines = block.padded / depths;
    if (zero.size() != 0) args.zero = zero.data() + 16 * from;
    args.zero_stride = 16 * (block.groups + kGap);
    args.to = out.data();
    args.to_stride = static_cast<int64_t>(2 * bytes);
    args.ahead = ahead;
    kernel->call(args);
    EXPECT_TRUE(out.slack_intact());
    const std::vector<std::byte> all =
        quads ? bytes_of(block.quads(to_type == DType::kS8)) : bytes_of(block.pairs());
    const size_t of_panel = all.size() / panels;
    for (size_t p = 0; p < panels; ++p) {
      const std::byte* want =
          all.data() + p * of_panel + static_cast<size_t>(from) * group_lines * line_bytes;
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(out.data()[2 * p * bytes + i], static_cast<unsigned char>(want[i]))
            << kernel->name << " panel " << p << " byte " << i << ", groups " << from << " to "
            << to;
      }
      if (p + 1 == panels) break;
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(out.data()[(2 * p + 1) * bytes + i], kUntouched) << kernel->name;
      }
    }
  }

  static constexpr int kGap = 2;
};

// Code 5 at depth 1 of column 2, zero point 7 there: all other codes and zero points are 0.
TEST_F(GroupedDecode, LiteralLine) {
  std::vector<uint32_t> line(16, 0);
  line[2] = 5u << 16;  // depth 1 is nibble 4
  std::vector<uint8_t> zero(16, 0);
  zero[2] = 7;
  alignas(64) uint8_t quads[128];
  alignas(64) uint16_t pairs[128];
  GroupedDecodeArgs args;
  args.b = line.data();
  args.panels = args.groups = args.group_lines = 1;
  args.zero = zero.data();
  args.to = quads;
  make(GroupedDecodeAvx512Config{DType::kU8, Int4Zeros::kSymmetric, true})->call(args);
  // Byte 2 of the column's quad: depths stand in the order 0, 2, 1, 3.
  for (int i = 0; i < 128; ++i) ASSERT_EQ(quads[i], i == 4 * 2 + 2 ? 5 : 0) << i;
  make(GroupedDecodeAvx512Config{DType::kS8, Int4Zeros::kInteger, true})->call(args);
  for (int i = 0; i < 128; ++i) {
    const int want = i == 4 * 2 + 2 ? 0xfe : i % 64 / 4 == 2 ? 0xf9 : 0;  // -2, -7
    ASSERT_EQ(quads[i], want) << i;
  }
  args.to = pairs;
  make(GroupedDecodeAvx512Config{DType::kBF16, Int4Zeros::kInteger, true})->call(args);
  for (int i = 0; i < 128; ++i) {
    const bool column = i % 32 / 2 == 2;
    const int want = i == 2 * 2 + 1 ? 0xc000 : column ? 0xc0e0 : 0;  // -2, -7
    ASSERT_EQ(pairs[i], want) << i;
  }
}

// All codes at each of eight depths in each of 16 columns, with every zero point there is.
TEST_F(GroupedDecode, EveryCodeInEveryPlaceWithEveryZeroPoint) {
  Numbers numbers(41);
  for (const Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
    const GroupConfig config{.a = DType::kBF16, .zeros = zeros};
    GroupedBlock block(1, 1, 17, 8 * 16, 0, config, numbers);
    for (int c = 0; c < 16; ++c) {
      for (int g = 0; g < block.groups; ++g) {
        for (int d = 0; d < block.padded; ++d) {
          block.q_at(c, g * block.padded + d) = (d / 8 + 3 * d + 5 * c) % 16;
        }
        if (zeros == Int4Zeros::kInteger) {
          block.zero[static_cast<size_t>(c * block.groups + g)] = static_cast<float>((g + c) % 17);
        }
      }
    }
    for (const DType type : {DType::kU8, DType::kS8, DType::kBF16}) {
      ASSERT_NO_FATAL_FAILURE(check(block, type, 0, 17, 0, Flush::kEnd));
    }
  }
}

// 256 lines (e2m1: 16), so that every code stands once in every place.
TEST_F(GroupedDecode, EveryFloatCodeInEveryPlace) {
  Numbers numbers(43);
  for (const DType codes : kFloats) {
    const int count = 1 << bits_of(codes), depths = 32 / bits_of(codes);
    GroupedBlock block(1, 1, 1, count * depths, 0, {.a = DType::kBF16}, numbers, codes);
    for (int c = 0; c < 16; ++c) {
      for (int d = 0; d < block.padded; ++d) {
        block.q_at(c, d) = (d / depths + 3 * (d % depths) + 5 * c) % count;
      }
    }
    ASSERT_NO_FATAL_FAILURE(check(block, DType::kBF16, 0, 1, 0, Flush::kEnd));
  }
}

TEST_F(GroupedDecode, EveryNumberOfPanelsGroupsAndLines) {
  Numbers numbers(42);
  for (const DType codes : kFloats) {
    for (int turn = 0; turn < 60; ++turn) {
      const int panels = 1 + turn % 4, groups = 1 + turn % 5, lines = 1 + turn % 9;
      const GroupedBlock block(1, panels, groups, 8 * lines, 0, {.a = DType::kBF16}, numbers,
                               codes);
      for (const Flush flush : {Flush::kEnd, Flush::kStart}) {
        ASSERT_NO_FATAL_FAILURE(check(block, DType::kBF16, groups / 2, groups, 64 * turn, flush));
      }
    }
  }
  for (const Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
    const GroupConfig config{.a = DType::kBF16, .zeros = zeros};
    for (int panels = 1; panels <= 4; ++panels) {
      for (int groups = 1; groups <= 5; ++groups) {
        for (const int lines : {1, 2, 3, 7, 8, 16}) {
          const GroupedBlock block(1, panels, groups, 8 * lines, 0, config, numbers);
          const int from = static_cast<int>(numbers.next() % static_cast<uint64_t>(groups));
          const int left = groups - from;
          const int to = from + 1 + static_cast<int>(numbers.next() % static_cast<uint64_t>(left));
          const auto far = static_cast<int64_t>(numbers.next());
          const int64_t ahead = lines % 2 == 0 ? far : 1024;
          for (const DType type : {DType::kU8, DType::kS8, DType::kBF16}) {
            for (const Flush flush : {Flush::kEnd, Flush::kStart}) {
              ASSERT_NO_FATAL_FAILURE(check(block, type, from, to, ahead, flush));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::jit
