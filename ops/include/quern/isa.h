#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quern/export.h"

namespace quern {
inline namespace v0 {

/// What a kernel may use; one level is one set of generators.
///   kAvx512: AVX-512 F, BW, DQ, VL and VNNI, with the state enabled by the operating system.
///   kAmx: AMX-TILE, AMX-INT8 and AMX-BF16 in CPUID, tile state in XCR0 and the
///   operating system's permission, plus everything of kAvx512.
enum class IsaLevel : int32_t { kNone = 0, kAvx512 = 1, kAmx = 2 };

/// "none", "avx512", "amx".
QUERN_API const char* to_string(IsaLevel level) noexcept;

/// One step of the detection, in order, for people who ask why.
struct IsaStage {
  std::string name;  ///< e.g. "amx: XCR0"
  bool passed = false;
  std::string detail;  ///< e.g. "XCR0 = 0xe7: tile state (bits 17, 18) is off"
};

/// What detection found. `level` is what kernels may use on this machine, before any cap.
struct IsaReport {
  IsaLevel level = IsaLevel::kNone;
  std::string cpu;  ///< brand string
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool avx512_fp16 = false;
  std::vector<IsaStage> stages;
};

}  // namespace v0
}  // namespace quern
