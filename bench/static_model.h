#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/static_code.h"

namespace quern::bench {

/// What one instruction, or many of them, ask of a core like Golden Cove (README: the constants and
/// where they come from). No caches, no dependencies, no clock: only how long each port is busy.
struct PortUse {
  double tile = 0;        ///< cycles of the tile multiplier
  double load = 0;        ///< accesses of up to 64 bytes: two a cycle
  double store = 0;       ///< cycles of the store port
  double p0 = 0, p5 = 0;  ///< vector operations that only this port has
  double p05 = 0;         ///< and those that either takes
  double divider = 0;     ///< cycles of the divider, which holds up no port
  double scalar = 0;      ///< operations of the five scalar units, branches included
  double slots = 0;       ///< of the front end: six a cycle
  /// Cycles in which nothing else happens: the tile configuration is loaded or released.
  double alone = 0;

  PortUse& operator+=(const PortUse& other);
  PortUse operator*(double times) const;
};

enum class Port { kTile, kLoad, kStore, kVector, kDivider, kScalar, kFrontEnd };
inline constexpr Port kPorts[] = {Port::kTile,    Port::kLoad,   Port::kStore,   Port::kVector,
                                  Port::kDivider, Port::kScalar, Port::kFrontEnd};
const char* to_string(Port port);

/// Cycles for which `use` keeps the port busy.
double cycles(const PortUse& use, Port port);
/// The port that is busy longest.
Port binding(const PortUse& use);

PortUse use_of(const CodeInstruction& instruction);

/// A stretch of the call that overlaps with no other in this model.
struct CodePhase {
  std::string name;
  PortUse use;

  /// Of the binding port, and what happens alone.
  double duration() const;
};

/// One call of a kernel.
struct CallModel {
  uint64_t tile_dots = 0;
  uint64_t tile_loads = 0;
  uint64_t tile_stores = 0;
  std::vector<CodePhase> phases;  ///< in the order of the code; those that never run left out

  PortUse total() const;
  /// The sum over the phases.
  double duration() const;
  /// Tile cycles over duration(), in [0, 1].
  double occupancy() const;
};

/// `times` says how often each instruction runs. Phases begin at the sections that the generators
/// name "k_loop", "stage", "to_f32" and so on; what comes first is the phase "start".
CallModel model_call(const std::vector<CodeInstruction>& code, const std::vector<uint64_t>& times,
                     const std::vector<jit::CodeSection>& sections);

/// What a call adds where it stands alone, with no other before and after it in flight: the time
/// from the first tile load to the first dot product, and from the last one's issue to its result.
constexpr double kTileLoadLatency = 45;
constexpr double kTileDotLatency = 52;
constexpr double kTileDotCycles = 16;
constexpr double kFillAndDrain = kTileLoadLatency + kTileDotLatency - kTileDotCycles;

}  // namespace quern::bench
