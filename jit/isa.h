#pragma once

#include <cstddef>
#include <cstdint>

#include "quern/isa.h"

namespace quern::jit {

struct CpuidRegs {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

struct ArchPrctlResult {
  int error = 0;       ///< 0 or an errno
  uint64_t value = 0;  ///< what an ARCH_GET_* operation stored
};

/// arch_prctl operations and the state component that AMX needs (Linux uapi asm/prctl.h).
constexpr int kArchGetXcompPerm = 0x1022;
constexpr int kArchReqXcompPerm = 0x1023;
constexpr unsigned long kXfeatureTileData = 18;

/// Where detection gets its facts from. Tests and the AMX emulator put their own in place of the
/// machine's, so nothing else in jit/ may execute CPUID, XGETBV or arch_prctl.
class CpuSource {
 public:
  virtual ~CpuSource() = default;
  virtual CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) const = 0;
  /// Only called when CPUID says OSXSAVE: the instruction faults otherwise.
  virtual uint64_t xgetbv(uint32_t index) const = 0;
  /// `arg` is the feature number of a request; ARCH_GET_* answers in `value`.
  virtual ArchPrctlResult arch_prctl(int op, unsigned long arg) const = 0;
};

/// The machine this process runs on. Stateless.
const CpuSource& system_cpu();

/// What Context::create detects: system_cpu(), or what set_process_cpu() put in its place. The
/// setter is for the AMX emulator in tools of the build tree (tests/support/emulate_amx.h): before
/// the first context, with a `cpu` that outlives them all; null puts system_cpu() back.
const CpuSource& process_cpu();
void set_process_cpu(const CpuSource* cpu);

/// Data and unified cache sizes as CPUID reports them; 0 where it does not (hypervisors mask these
/// leaves). Nobody may size a block from them without a fallback.
struct CacheSizes {
  size_t l1d_bytes = 0;
  size_t l2_bytes = 0;
  size_t l3_bytes = 0;
  uint32_t l3_shared_by = 0;  ///< logical processors that share one L3; 0: not reported
};

/// What generators may use. A flag is set only when the instructions can be executed: the CPUID
/// bit, the state in XCR0 and, for AMX, the kernel's permission.
struct IsaFeatures {
  bool avx512_core = false;  ///< F, BW, DQ and VL
  bool vnni = false;
  bool bf16 = false;
  bool vbmi = false;
  bool vbmi2 = false;
  bool fp16 = false;
  /// vdpbf16ps is slower than the two FMAs it stands for: so on Intel's cores up to Granite Rapids,
  /// which start one every other cycle and four FMAs in that time. A hint for speed, from the
  /// vendor; it never decides what can run.
  bool slow_bf16_dots = false;
  /// 512-bit operations pass through units of 256 bits, two at a time: AMD's Zen 4. A hint for
  /// speed as well.
  bool half_width_vectors = false;
  /// A core takes 40 GB/s and more from memory, so that twice as much has to be on its way as for
  /// others: AMD's Zen 5. A hint for speed too.
  bool far_prefetch = false;
  bool bmi2 = false;  ///< bzhi and friends; needs no state of its own
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;
  CacheSizes cache;
  IsaLevel level = IsaLevel::kNone;  ///< never above the cap that detect() was given
};

/// Names of the stages in IsaReport, in the order of the report.
inline constexpr char kStageAvx512Cpuid[] = "avx512: CPUID";
inline constexpr char kStageAvx512Xcr0[] = "avx512: XCR0";
inline constexpr char kStageAmxCpuid[] = "amx: CPUID";
inline constexpr char kStageAmxXcr0[] = "amx: XCR0";
inline constexpr char kStageAmxPermission[] = "amx: permission";

/// Runs every stage, also after one has failed, so that the report tells the whole story; a stage
/// that cannot be run for want of an earlier one has failed and says which. What can run
/// is decided by feature bits only, never by vendor or model. Below max_level kAmx no arch_prctl is
/// made (a sandbox may kill the process for it), and report->level is then at most kAvx512.
/// `report` may be null. report->level is what the machine can do, the returned level is that
/// capped by max_level.
IsaFeatures detect(const CpuSource& source, IsaLevel max_level, IsaReport* report);

}  // namespace quern::jit
