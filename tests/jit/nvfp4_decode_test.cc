// The decoding of NVFP4 panels alone, registers poisoned: every code with every scale in every
// place, operands between pages that fault.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jit/nvfp4_decode_avx512.h"
#include "tests/jit/grouped_call.h"
#include "tests/jit/kernel_fixture.h"
#include "tests/jit/nvfp4_block.h"

namespace quern::jit {
namespace {

using test::Flush;
using test::GuardBuffer;

constexpr unsigned char kUntouched = 0x5a;

class Nvfp4Decode : public KernelTest {
 protected:
  /// Blocks from..to - 1 of all panels. Between the panels lies as much again that must stay as it
  /// is.
  void check(const Nvfp4Block& block, int from, int to, int64_t ahead, Flush flush) {
    const KernelHandle kernel = make(Nvfp4DecodeAvx512Config{true});
    ASSERT_NE(kernel, nullptr);
    const GuardBuffer b = guarded(block.codes(), flush);
    const GuardBuffer scale = guarded(block.scales(kGap), flush);
    const auto panels = static_cast<size_t>(block.panels);
    const size_t bytes = static_cast<size_t>(to - from) * kBlockBytes;
    GuardBuffer out((2 * panels - 1) * bytes, flush);
    std::memset(out.data(), kUntouched, out.size());
    Nvfp4DecodeArgs args;
    args.b = b.data() + from * 128;
    args.panel_stride = block.panel_bytes();
    args.panels = block.panels;
    args.blocks = to - from;
    args.scale = scale.data() + from * 16;
    args.scale_stride = 16 * (block.blocks() + kGap);
    args.to = out.data();
    args.to_stride = static_cast<int64_t>(2 * bytes);
    args.ahead = ahead;
    kernel->call(args);
    EXPECT_TRUE(out.slack_intact());
    const std::vector<uint16_t> all = block.pairs();
    const size_t of_panel = all.size() / panels;
    for (size_t p = 0; p < panels; ++p) {
      const uint16_t* want =
          all.data() + p * of_panel + static_cast<size_t>(from) * kBlockBytes / 2;
      for (size_t i = 0; i < bytes / 2; ++i) {
        uint16_t got;
        std::memcpy(&got, out.data() + 2 * p * bytes + 2 * i, sizeof got);
        ASSERT_EQ(got, want[i]) << "panel " << p << " element " << i << ", blocks " << from
                                << " to " << to << " of " << block.blocks();
      }
      if (p + 1 == panels) break;
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(out.data()[(2 * p + 1) * bytes + i], kUntouched);
      }
    }
  }

  static constexpr int kGap = 2;
  static constexpr size_t kBlockBytes = 16 * 16 * 2;
};

// -3 * 0.5625 (9 / 16) at depth 9 of column 2, whose other codes are 0.
TEST_F(Nvfp4Decode, LiteralBlock) {
  std::vector<uint32_t> lines(32, 0);
  lines[16 + 2] = 0xdu << 16;  // of the second line: depth 1 is nibble 4
  std::vector<uint8_t> scale(16, 3);
  scale[2] = 0x4f;  // 0x4400 - 16 * 0x4f is 0x3f10, 0.5625
  alignas(64) uint16_t pairs[256];
  Nvfp4DecodeArgs args;
  args.b = lines.data();
  args.panels = args.blocks = 1;
  args.scale = scale.data();
  args.to = pairs;
  make(Nvfp4DecodeAvx512Config{true})->call(args);
  // Line 4 holds depths 8 and 9: -1.6875 is 0xbfd8.
  for (int i = 0; i < 256; ++i) ASSERT_EQ(pairs[i], i == 4 * 32 + 2 * 2 + 1 ? 0xbfd8 : 0) << i;
}

// 16 codes at each depth of a block, in each column, with every scale that e4m3 has.
TEST_F(Nvfp4Decode, EveryCodeWithEveryScaleInEveryPlace) {
  Numbers numbers(51);
  const std::vector<float> scales = e4m3_magnitudes();
  ASSERT_EQ(scales.size(), 126u);
  for (int turn = 0; turn < 16; ++turn) {
    Nvfp4Block block(1, 16 * static_cast<int>(scales.size()), numbers);
    for (int c = 0; c < 16; ++c) {
      for (size_t s = 0; s < scales.size(); ++s) {
        block.scale_at(c, static_cast<int>(s)) = scales[(s + static_cast<size_t>(7 * c)) % 126];
      }
      for (int d = 0; d < block.k; ++d) {
        block.code[static_cast<size_t>(c * block.k + d)] = (d + turn + 5 * c) % 16;
      }
    }
    ASSERT_NO_FATAL_FAILURE(check(block, 0, block.blocks(), 0, Flush::kEnd));
  }
}

// A scale of zero is packed as codes of zero, whatever stands beside them.
TEST_F(Nvfp4Decode, ZerosStayZerosWithEveryByte) {
  std::vector<uint32_t> lines(32, 0x80808080);  // 0 and -0
  alignas(64) uint16_t pairs[256];
  Nvfp4DecodeArgs args;
  args.b = lines.data();
  args.panels = args.blocks = 1;
  args.to = pairs;
  for (int byte = 0; byte < 256; ++byte) {
    const std::vector<uint8_t> scale(16, static_cast<uint8_t>(byte));
    args.scale = scale.data();
    make(Nvfp4DecodeAvx512Config{true})->call(args);
    // -0 less anything would be a large positive number: the table has no -0.
    for (int i = 0; i < 256; ++i) ASSERT_EQ(pairs[i], 0) << byte << ' ' << i;
  }
}

TEST_F(Nvfp4Decode, EveryNumberOfPanelsAndBlocks) {
  Numbers numbers(52);
  for (int panels = 1; panels <= 4; ++panels) {
    for (const int blocks : {1, 2, 3, 4, 7, 16}) {
      Nvfp4Block block(panels, 16 * blocks - static_cast<int>(numbers.next() % 16), numbers);
      block.use_any_scales(numbers);
      const int from = static_cast<int>(numbers.next() % static_cast<uint64_t>(blocks));
      const int to =
          from + 1 + static_cast<int>(numbers.next() % static_cast<uint64_t>(blocks - from));
      const auto far = static_cast<int64_t>(numbers.next());
      for (const Flush flush : {Flush::kEnd, Flush::kStart}) {
        ASSERT_NO_FATAL_FAILURE(check(block, from, to, blocks % 2 == 0 ? far : 1024, flush));
      }
    }
  }
}

}  // namespace
}  // namespace quern::jit
