// Random programs: the second model against execute() on both paths, and execute() against the
// same program as machine code under the trap.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/amx_dot.h"
#include "tests/support/amx_execute.h"
#include "tests/support/amx_model.h"
#include "tests/support/amx_program.h"
#include "tests/support/amx_text.h"
#include "tests/support/amx_trap_fixture.h"

namespace quern::amx_emu {
namespace {

/// The step's instruction on an arena: configurations are read from a copy in it.
Instruction placed(const Step& step, Arena& arena) {
  Instruction i = step.instruction;
  uint8_t* place = arena.bytes + i.address;
  i.address = reinterpret_cast<uint64_t>(place);
  if (i.op == Op::kLdtilecfg) std::memcpy(place, step.config.bytes, kConfigBytes);
  return i;
}

bool is_nan(uint32_t bits) {
  return (bits & 0x7fffffffu) > 0x7f800000u;
}

/// Which NaN comes out where several meet is open; from here on both have the state's.
void agree_on_nans(const TileState& state, int tile, Model* model) {
  for (size_t i = 0; i < 1024; i += 4) {
    uint32_t ours, theirs;
    std::memcpy(&ours, &state.tile[tile].row[0][0] + i, 4);
    std::memcpy(&theirs, &model->bytes[tile][i], 4);
    if (is_nan(ours) && is_nan(theirs)) std::memcpy(&model->bytes[tile][i], &ours, 4);
  }
}

std::string difference(const TileState& state, const Model& model) {
  if (state.configured() != model.configured) return "configured";
  if (state.start_row != model.start_row) return "start_row";
  for (int t = 0; t < kTiles; ++t) {
    if (state.rows[t] != model.rows[t] || state.colsb[t] != model.colsb[t]) return "shape";
    if (std::memcmp(&state.tile[t], model.bytes[t].data(), 1024) != 0) {
      return "bytes of tmm" + std::to_string(t);
    }
  }
  return "";
}

struct Tally {
  int done = 0, undefined = 0, protection = 0;
};

void run_program(uint64_t seed, DotPath path, Tally* tally) {
  ProgramSource source(seed);
  const auto ours = std::make_unique<Arena>();
  const auto theirs = std::make_unique<Arena>();
  ours->fill(source.rng());
  *theirs = *ours;
  TileState state{};
  Model model;
  for (int n = 0; n < 60; ++n) {
    const Step step = source.next();
    const Instruction i = placed(step, *ours);
    const Fault fault = execute(state, i, path);
    const Model::Outcome outcome = model.run(placed(step, *theirs));
    const std::string what = "seed " + std::to_string(seed) + ", step " + std::to_string(n) + ": " +
                             Text().add(i).c_str();
    ASSERT_EQ(static_cast<int>(fault.kind), static_cast<int>(outcome)) << what;
    tally->done += outcome == Model::Outcome::kDone;
    tally->undefined += outcome == Model::Outcome::kUndefined;
    tally->protection += outcome == Model::Outcome::kProtection;
    if (i.op == Op::kTdpbf16ps || i.op == Op::kTdpfp16ps) agree_on_nans(state, i.dst, &model);
    ASSERT_EQ(difference(state, model), "") << what;
  }
  ASSERT_EQ(std::memcmp(ours->bytes, theirs->bytes, Arena::kBytes), 0) << "seed " << seed;
}

void run_programs(DotPath path, uint64_t programs) {
  Tally tally;
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    run_program(seed, path, &tally);
    if (::testing::Test::HasFatalFailure()) return;
  }
  // The programs do what they are for.
  EXPECT_GT(tally.done, static_cast<int>(programs) * 30);
  EXPECT_GT(tally.undefined, static_cast<int>(programs) * 2);
  EXPECT_GT(tally.protection, static_cast<int>(programs) / 20);
}

TEST(AmxRandom, FastPathAgreesWithTheModel) {
  if (!has_avx2()) GTEST_SKIP() << "this CPU has no AVX2";
  run_programs(DotPath::kAvx2, 300);
}

TEST(AmxRandom, PortablePathAgreesWithTheModel) {
  run_programs(DotPath::kPortable, 150);
}

class AmxRandomCode : public TrapTest {};

/// Registers that hold addresses: all but rsp.
constexpr int kRegisters[] = {0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr int kCalleeSaved[] = {3, 5, 12, 13, 14, 15};

/// One step as machine code, with base, index, scale and displacement at random.
void emit_step(Code& g, const Step& step, Arena& arena, test::Rng& rng) {
  const Instruction i = placed(step, arena);
  const Xbyak::Reg64 base(rng.pick(kRegisters));
  const int64_t disp = rng.one_in(3)   ? 0
                       : rng.one_in(2) ? rng.in(-128, 127)
                                       : rng.in(-70000, 70000);
  const auto offset = static_cast<size_t>(disp);
  if (has_memory(i.op)) g.mov(base, i.address - static_cast<uint64_t>(disp));
  if (!is_load(i.op) && i.op != Op::kTilestored) {
    emit(g, i, g.ptr[base + offset]);
    return;
  }
  Xbyak::Reg64 index = base;
  while (index.getIdx() == base.getIdx()) index = Xbyak::Reg64(rng.pick(kRegisters));
  const int scale = 1 << rng.in(0, 3);
  g.mov(index, static_cast<uint64_t>(static_cast<int64_t>(i.stride) / scale));
  emit(g, i, g.ptr[base + index * scale + offset]);
}

void run_code(uint64_t seed) {
  ProgramSource source(seed);
  const auto arena = std::make_unique<Arena>();
  arena->fill(source.rng());
  const auto copy = std::make_unique<Arena>(*arena);
  TileState state{};
  uint64_t executed = 0;
  // What faults stays out of the code: configurations are placed before the run, so that later
  // stores over them would change it; each gets a place of its own.
  std::vector<Step> steps;
  const auto configs = std::make_unique<Arena>();
  uint64_t next_config = 0;
  for (int n = 0; n < 60; ++n) {
    Step step = source.next();
    if (step.instruction.op == Op::kLdtilecfg) {
      step.instruction.address = next_config;
      next_config += kConfigBytes;
    }
    const bool config = step.instruction.op == Op::kLdtilecfg;
    if (execute(state, placed(step, config ? *configs : *copy))) continue;
    steps.push_back(step);
    ++executed;
  }
  const Code code([&](Code& g) {
    for (const int r : kCalleeSaved) g.push(Xbyak::Reg64(r));
    for (const Step& step : steps) {
      emit_step(g, step, step.instruction.op == Op::kLdtilecfg ? *configs : *arena, source.rng());
    }
    for (int r = 5; r >= 0; --r) g.pop(Xbyak::Reg64(kCalleeSaved[r]));
    g.ret();
  });
  const Counters before = thread_counters();
  code.run();
  EXPECT_EQ((thread_counters() - before).instructions(), executed);
  const TileState tiles = thread_tiles();
  ASSERT_EQ(std::memcmp(&tiles, &state, sizeof state), 0) << "seed " << seed;
  ASSERT_EQ(std::memcmp(arena->bytes, copy->bytes, Arena::kBytes), 0) << "seed " << seed;
}

TEST_F(AmxRandomCode, MachineCodeAgreesWithExecute) {
  Options lenient;
  lenient.strict = false;
  const Scope scope(lenient);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    reset_thread();
    run_code(seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace quern::amx_emu
