#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "jit/generator.h"

namespace quern::jit {

/// What debuggers and profilers are shown: a kernel with a whole frame that destroys every register
/// it saved, spins, and has code behind its return, as quantize_rows has. Its only instruction
/// beyond the baseline is the vzeroupper of emit_return.
struct BusyArgs {
  int64_t rounds = 1;  ///< at least 1
};

class BusyKernel final : public Generator {
 public:
  /// With `trap`, its first instruction stops in the debugger.
  explicit BusyKernel(bool trap) : Generator(name(), 6, false), trap_(trap) {}
  /// With every kind of character that names of kernels have.
  static std::string name() { return "busy.avx512.s8u8bf16.mr6.nr4.epi=bias+silu_mul"; }

 private:
  void emit() override {
    if (trap_) int3();
    emit_prologue();
    section("spin");
    Xbyak::Label outlying, back;
    TakenGp rounds(gp, "rounds");
    mov(*rounds, qword[args()]);
    for (const Xbyak::Reg64& reg : {rbx, rbp, r12, r13, r14, r15}) mov(reg, -1);
    loop(*rounds, [&] { nop(); });
    jmp(outlying, T_NEAR);
    L(back);
    emit_return();
    section("outlying");
    L(outlying);
    nop();
    jmp(back, T_NEAR);
  }
  bool trap_;
};

inline Result<GeneratedCode> generate_busy(bool trap) {
  return BusyKernel(trap).generate();
}

}  // namespace quern::jit
