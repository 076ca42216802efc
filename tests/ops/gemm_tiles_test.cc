// What a call leaves in the tiles of its threads: nothing (STTILECFG writes zeros), whatever the
// caller had configured before. Tiles in use cost every context switch of the host's thread.
#include <immintrin.h>

#include <array>

#include "tests/ops/gemm_fixture.h"
#include "tests/support/amx_cpu.h"
#include "tests/support/amx_trap.h"

namespace quern::test {
namespace {

/// 64 bytes as LDTILECFG and STTILECFG have them.
using TileConfig = std::array<uint8_t, 64>;

[[gnu::target("amx-tile")]] void load(const TileConfig& config) {
  _tile_loadconfig(config.data());
}
[[gnu::target("amx-tile")]] void release() {
  _tile_release();
}
[[gnu::target("amx-tile")]] TileConfig stored() {
  TileConfig config;
  config.fill(0xee);
  _tile_storeconfig(config.data());
  return config;
}

/// Palette 1, eight tiles of three rows of twelve bytes: no kernel's.
TileConfig foreign() {
  TileConfig config{};
  config[0] = 1;
  for (size_t tile = 0; tile < 8; ++tile) {
    config[16 + 2 * tile] = 12;
    config[48 + tile] = 3;
  }
  return config;
}

/// Gives each thread's share the foreign tiles, on the calling thread, and counts what it leaves.
class TilesPool final : public ThreadPool {
 public:
  explicit TilesPool(int threads) : threads_(threads) {}
  int size() const noexcept override { return threads_; }
  void run(int phases, PhaseFn fn, void* ctx) noexcept override {
    for (int phase = 0; phase < phases; ++phase) {
      for (int tid = 0; tid < threads_; ++tid) {
        load(foreign());
        fn(ctx, phase, tid, threads_);
        const TileConfig after = stored();
        if (after == TileConfig{}) {
          ++empty;
        } else if (after == foreign()) {
          ++untouched;  // a share without tiles: quantization, or nothing to do
        } else {
          ++left;
        }
        release();
      }
    }
  }
  int empty = 0, untouched = 0, left = 0;

 private:
  int threads_;
};

/// At levels with tiles.
class GemmTilesTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    // Whoever makes the context brings what the test's own tile instructions need: the system's
    // permission, or the emulation.
    ASSERT_GE(ctx().isa(), IsaLevel::kAmx);
  }
  std::vector<GemmCase> cases() const {
    std::vector<GemmCase> all;
    uint64_t variant = 30;
    // One block; a tail; whole and partial blocks of rows; several chunks of weights; K cut.
    for (const char* shape : {"m:16/n:768/k:160", "m:5/n:1000/k:130", "m:70/n:150/k:701",
                              "m:49/n:200/k:3201", "m:600/n:70/k:70"}) {
      all.push_back(make_case(kind(), shape));
      vary(all.back(), ++variant);
      all.back().fill = Fill::kRandom;
      all.back().residual_is_c = false;
    }
    return all;
  }
};

TEST_P(GemmTilesTest, TheCallingThreadGetsThemBackUnused) {
  for (const GemmCase& c : cases()) {
    release();
    const std::vector<uint32_t> expected = bits_in(ctx(), c);
    EXPECT_EQ(stored(), TileConfig{}) << to_string(c);
    load(foreign());
    EXPECT_EQ(bits_in(ctx(), c), expected) << to_string(c);
    EXPECT_EQ(stored(), TileConfig{}) << to_string(c);
    release();
  }
}

TEST_P(GemmTilesTest, SoDoesEveryThreadOfAPool) {
  for (const GemmCase& c : cases()) {
    const std::vector<uint32_t> expected = bits_in(ctx(), c);
    for (const int threads : {2, 3, 5}) {
      TilesPool pool(threads);
      EXPECT_EQ(bits_in(context_at(isa(), &pool), c), expected) << threads << " " << to_string(c);
      EXPECT_EQ(pool.left, 0) << threads << " " << to_string(c);
      EXPECT_GT(pool.empty, 1) << threads << " " << to_string(c);
    }
  }
}

// Blocks of one shape, over several chunks of weights, need one configuration; several shapes are
// walked to and fro, so that a chunk begins with the shape the one before ended with. 70 rows are
// blocks of 16, 32 and 22, and what serves 32 serves 16.
TEST_P(GemmTilesTest, AreConfiguredOnceForAShape) {
  if (amx_emu::native_amx()) GTEST_SKIP() << "the emulator counts, a CPU does not";
  struct Expected {
    const char* shape;
    uint64_t configurations;
  };
  constexpr uint64_t kChunks = 3;  // of 32 columns
  for (const Expected& e : {Expected{"m:64/n:96/k:256", 1}, Expected{"m:32/n:96/k:64", 1},
                            Expected{"m:70/n:96/k:256", 2 + (kChunks - 1)}}) {
    const GemmCase c = make_case(kind(), e.shape);
    GemmData data(c);
    Result<GemmOp> op = GemmOp::create(ctx(), c);
    ASSERT_TRUE(op.ok()) << op.status().message();
    ASSERT_TRUE(op->pack(data).ok());
    const amx_emu::Counters before = amx_emu::thread_counters();
    output_bits(*op, c, data);
    const amx_emu::Counters run = amx_emu::thread_counters() - before;
    EXPECT_EQ(run[amx_emu::Op::kLdtilecfg], e.configurations) << e.shape;
    EXPECT_GT(run.dots(), 0u);
  }
}

std::vector<TestIsa> levels_with_tiles() {
  std::vector<TestIsa> levels;
  for (const TestIsa& isa : isas_to_test()) {
    if (isa.level >= IsaLevel::kAmx) levels.push_back(isa);
  }
  return levels;
}
INSTANTIATE_TEST_SUITE_P(Ops, GemmTilesTest,
                         ::testing::Combine(::testing::ValuesIn(levels_with_tiles()),
                                            ::testing::ValuesIn(kGemmKinds)),
                         gemm_test_name);

}  // namespace
}  // namespace quern::test
