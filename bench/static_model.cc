#include "bench/static_model.h"

#include <algorithm>
#include <string_view>

namespace quern::bench {
namespace {

using Kind = CodeOperand::Kind;

constexpr double kLoadsPerCycle = 2;
constexpr double kScalarUnits = 5;
constexpr double kSlotsPerCycle = 6;
constexpr double kLinesOfATile = 16;
constexpr double kTileStoreCycles = 16;
constexpr double kConfigureCycles = 204;
constexpr double kReleaseCycles = 13;
// Between vector operations, measured (NOTES.md): they wait for it, whatever the port.
constexpr double kMxcsrCycles = 5;

/// Vector instructions that are not one operation of either port, at 512 bits.
struct Special {
  std::string_view mnemonic;
  double p0, p5, p05;
  double slots = 1;
  double divider = 0;
};
constexpr Special kSpecial[] = {
    // Once in two cycles where vpdpbusd issues twice a cycle: measured (NOTES.md, roofs of GNR).
    {"vdpbf16ps", 2, 2, 0, 4},
    {"vcvtneps2bf16", 1, 1, 0, 2},
    {"vdivps", 2, 0, 1, 3, 10},
    {"vrndscaleps", 0, 0, 2, 2},
    {"vcvtqq2ps", 1, 1, 0, 2},
    // Shifts are on port 0, what crosses lanes or changes widths on port 5.
    {"vpslld", 1, 0, 0},
    {"vpsrld", 1, 0, 0},
    {"vpsllq", 1, 0, 0},
    {"vpmovd2m", 1, 0, 0},
    {"vpmovdw", 0, 2, 0, 2},
    {"vpmovzxwd", 0, 1, 0},
    {"vpmovsxdq", 0, 1, 0},
    {"vextracti64x4", 0, 1, 0},
    {"vinsertf64x4", 0, 1, 0},
    {"vpshufb", 0, 1, 0},
    {"vpshufd", 0, 1, 0},
    {"vpunpcklbw", 0, 1, 0},
    {"vpunpckhbw", 0, 1, 0},
    {"vpmovw2m", 1, 0, 0},
    // As their throughput is published (uops.info, Ice Lake); not measured here.
    {"vpermi2b", 0, 2, 1, 3},
    {"vpermi2w", 0, 2, 1, 3},
    {"vpmovzxbd", 0, 1, 0},
    // Measured as vdpbf16ps was, on the same machine, beside instructions of one port.
    {"vpermw", 1, 1, 0, 2},
    {"vcvtph2ps", 0, 1, 1, 2},
    {"vpmulld", 0, 0, 2, 2},
    {"vpermb", 0, 1, 0},
};

bool begins(const CodeInstruction& i, std::string_view text) {
  return i.mnemonic.rfind(text, 0) == 0;
}

bool has(const CodeInstruction& i, Kind kind) {
  return std::any_of(i.operands.begin(), i.operands.end(),
                     [kind](const CodeOperand& o) { return o.kind == kind; });
}

bool is_move(const CodeInstruction& i) {
  return begins(i, "vmov") && (begins(i, "vmova") || begins(i, "vmovu") || begins(i, "vmovdq"));
}

/// Memory operands on the load and store ports.
void add_accesses(const CodeInstruction& i, PortUse* use) {
  for (const CodeOperand& o : i.operands) {
    if (o.kind != Kind::kMemory) continue;
    if (o.read) use->load += 1;
    // Two stores a cycle where they are narrow, one of 64 bytes.
    if (o.written) use->store += o.bytes > 32 || i.masked ? 1 : 0.5;
  }
}

PortUse use_of_tile(const CodeInstruction& i) {
  PortUse use{.slots = 1};
  if (begins(i, "tdp")) {
    use.tile = kTileDotCycles;
  } else if (begins(i, "tileload")) {
    use.load = kLinesOfATile;
    use.slots = kLinesOfATile / 2;
  } else if (i.is("tilestored")) {
    use.store = kTileStoreCycles;
    use.slots = kLinesOfATile;
  } else if (i.is("ldtilecfg")) {
    use.load = 1;
    use.alone = kConfigureCycles;
  } else if (i.is("tilerelease")) {
    use.alone = kReleaseCycles;
  }
  return use;  // tilezero: a slot
}

void add_vector(const CodeInstruction& i, PortUse* use) {
  const bool memory = has(i, Kind::kMemory);
  if (is_move(i)) {
    // Renaming does not move zmm registers; a masked load merges or clears in a vector unit.
    const bool stores = memory && i.operands[0].kind == Kind::kMemory;
    if (!memory || (i.masked && !stores)) use->p05 += 1;
    return;
  }
  if (begins(i, "vpbroadcast") || begins(i, "vbroadcast")) {
    // From memory the load port does it.
    if (!memory) use->p5 += 1;
    if (memory && i.masked) use->p05 += 1;
    return;
  }
  for (const Special& special : kSpecial) {
    if (!i.is(special.mnemonic)) continue;
    use->p0 += special.p0;
    use->p5 += special.p5;
    use->p05 += special.p05;
    use->slots = special.slots;
    use->divider += special.divider;
    return;
  }
  // Comparisons into a mask are on port 5.
  (i.operands[0].kind == Kind::kMask ? use->p5 : use->p05) += 1;
}

void add_scalar(const CodeInstruction& i, PortUse* use) {
  const bool memory = has(i, Kind::kMemory);
  const bool only_moves =
      i.is("push") || i.is("pop") || begins(i, "prefetch") || (begins(i, "mov") && memory);
  if (!only_moves) use->scalar += 1;
  if (i.is("ldmxcsr")) use->alone += kMxcsrCycles;
  if (i.is("push")) use->store += 0.5;
  if (i.is("pop") || i.is("ret") || begins(i, "prefetch")) use->load += 1;
}

struct PhaseStart {
  std::string_view section, phase;
};
// Any other section belongs to the phase it is found in: "silu_mul" to the rows, "k_tail" to the
// K loop. Groups are multiplied and folded in one loop, which is written so that the two overlap.
constexpr PhaseStart kPhaseStarts[] = {
    {"k_loop", "k_loop"}, {"stage", "stage"},        {"store_partial", "store_partial"},
    {"to_f32", "rows"},   {"release", "end"},        {"return", "end"},
    {"epilogue", "rows"}, {"scale_columns", "rows"}, {"groups", "k_loop"},
    {"panels", "panels"},
};

}  // namespace

PortUse& PortUse::operator+=(const PortUse& other) {
  tile += other.tile;
  load += other.load;
  store += other.store;
  p0 += other.p0;
  p5 += other.p5;
  p05 += other.p05;
  divider += other.divider;
  scalar += other.scalar;
  slots += other.slots;
  alone += other.alone;
  return *this;
}

PortUse PortUse::operator*(double times) const {
  return {.tile = tile * times,
          .load = load * times,
          .store = store * times,
          .p0 = p0 * times,
          .p5 = p5 * times,
          .p05 = p05 * times,
          .divider = divider * times,
          .scalar = scalar * times,
          .slots = slots * times,
          .alone = alone * times};
}

const char* to_string(Port port) {
  switch (port) {
    case Port::kTile:
      return "tile";
    case Port::kLoad:
      return "load";
    case Port::kStore:
      return "store";
    case Port::kVector:
      return "vector";
    case Port::kDivider:
      return "divider";
    case Port::kScalar:
      return "scalar";
    case Port::kFrontEnd:
      return "front end";
  }
  return "?";
}

double cycles(const PortUse& use, Port port) {
  switch (port) {
    case Port::kTile:
      return use.tile;
    case Port::kLoad:
      return use.load / kLoadsPerCycle;
    case Port::kStore:
      return use.store;
    case Port::kVector:
      return std::max({use.p0, use.p5, (use.p0 + use.p5 + use.p05) / 2});
    case Port::kDivider:
      return use.divider;
    case Port::kScalar:
      return use.scalar / kScalarUnits;
    case Port::kFrontEnd:
      return use.slots / kSlotsPerCycle;
  }
  return 0;
}

Port binding(const PortUse& use) {
  return *std::max_element(std::begin(kPorts), std::end(kPorts),
                           [&use](Port x, Port y) { return cycles(use, x) < cycles(use, y); });
}

PortUse use_of(const CodeInstruction& i) {
  if (begins(i, "tile") || begins(i, "tdp") || i.is("ldtilecfg")) return use_of_tile(i);
  PortUse use{.slots = 1};
  if (i.is("nop")) return use;
  if (i.is("vzeroupper")) return PortUse{.slots = 4};
  add_accesses(i, &use);
  if (has(i, Kind::kVector)) {
    add_vector(i, &use);
  } else if (has(i, Kind::kMask)) {
    const bool to_mask = !i.operands.empty() && i.operands[0].kind == Kind::kMask;
    (to_mask ? use.p5 : use.p0) += 1;
  } else {
    add_scalar(i, &use);
  }
  return use;
}

double CodePhase::duration() const {
  return cycles(use, binding(use)) + use.alone;
}

PortUse CallModel::total() const {
  PortUse sum;
  for (const CodePhase& phase : phases) sum += phase.use;
  return sum;
}

double CallModel::duration() const {
  double sum = 0;
  for (const CodePhase& phase : phases) sum += phase.duration();
  return sum;
}

double CallModel::occupancy() const {
  const double all = duration();
  return all > 0 ? total().tile / all : 0;
}

CallModel model_call(const std::vector<CodeInstruction>& code, const std::vector<uint64_t>& times,
                     const std::vector<jit::CodeSection>& sections) {
  CallModel model;
  CodePhase running{"start", {}};
  const auto finish = [&] {
    if (running.use.slots > 0) model.phases.push_back(running);
    running.use = {};
  };
  auto section = sections.begin();
  for (size_t n = 0; n < code.size(); ++n) {
    const CodeInstruction& i = code[n];
    for (; section != sections.end() && section->offset <= i.offset; ++section) {
      for (const PhaseStart& start : kPhaseStarts) {
        if (section->name != start.section || running.name == start.phase) continue;
        finish();
        running.name = start.phase;
      }
    }
    if (times[n] == 0) continue;
    running.use += use_of(i) * static_cast<double>(times[n]);
    if (begins(i, "tdp")) model.tile_dots += times[n];
    if (begins(i, "tileload")) model.tile_loads += times[n];
    if (i.is("tilestored")) model.tile_stores += times[n];
  }
  finish();
  return model;
}

}  // namespace quern::bench
