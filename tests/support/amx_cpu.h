#pragma once

#include <cstdint>

#include "jit/isa.h"

namespace quern::amx_emu {

struct CpuOptions {
  bool fp16 = true;  ///< AMX-FP16 too, which Granite Rapids has and Sapphire Rapids has not
  /// errno of ARCH_REQ_XCOMP_PERM and of ARCH_GET_XCOMP_PERM; 0: they succeed. Kernels that refuse
  /// answer EPERM (a filter, or signal stacks too small), EINVAL (before 5.16), EOPNOTSUPP (no such
  /// state) or ENOSYS (a sandbox).
  int request_error = 0;
  int get_error = 0;
};

/// The real machine with AMX added: the feature bits, leaves 1Dh and 1Eh, bits 17 and 18 of XCR0,
/// and the kernel's permission, which is the one that the trap layer knows (note_permission): given
/// on request, for the whole process, and never asked of the real kernel. Everything else is what
/// `real` answers, in particular whether the machine has AVX-512. Leaf 0Dh does not list tile
/// state. For machines without AMX: on others the real kernel would have to be asked, and
/// jit::system_cpu() does. Thread-safe as `real` is; `real` outlives it.
class EmulatedCpu final : public jit::CpuSource {
 public:
  explicit EmulatedCpu(const jit::CpuSource& real, const CpuOptions& options = {})
      : real_(real), options_(options) {}

  jit::CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) const override;
  uint64_t xgetbv(uint32_t index) const override;
  jit::ArchPrctlResult arch_prctl(int op, unsigned long arg) const override;

 private:
  /// What `real` has in a leaf; zeros above its highest.
  jit::CpuidRegs real_leaf(uint32_t leaf, uint32_t subleaf) const;

  const jit::CpuSource& real_;
  CpuOptions options_;
};

}  // namespace quern::amx_emu
