#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "jit/kernel.h"
#include "jit/regs.h"
#include "quern/status.h"
#include "xbyak/xbyak.h"

namespace quern::jit {

/// Base of every generator. A generator is a pure function from a Config to bytes: it writes into
/// ordinary heap memory that is never executable; publishing the bytes is KernelCache's business.
///
/// The emitted function is `void kernel(const Args*)` in the System V ABI. All of rbx, rbp, r12-r15
/// that the generator's pool may hand out are saved; upper vector state is cleared on return; the
/// red zone and the stack are not used beyond the saved registers.
class Generator : protected Xbyak::CodeGenerator {
 public:
  virtual ~Generator() = default;

  /// Emits everything. kInternal with static text when the generator broke one of its own rules
  /// (register taken twice, buffer too small, jump out of range): a bug, reported, never a crash.
  Result<GeneratedCode> generate();

 protected:
  /// `callee_saved` of rbx, rbp, r12.. may be used besides the nine volatile registers.
  Generator(std::string name, int callee_saved, bool poison, size_t max_bytes = 64 << 10);

  virtual void emit() = 0;

  /// Saves registers and leaves the Args pointer in args(). With `poison`, fills every vector and
  /// mask register with a pattern that is NaN as f32 and garbage as an integer, so that a read of a
  /// register nobody wrote shows in every result.
  void emit_prologue();
  void emit_return();  ///< code that follows it belongs to the body again

  /// Runs `body` count times; count > 0 at run time and is destroyed.
  template <typename Body>
  void loop(const Xbyak::Reg64& count, const Body& body) {
    Xbyak::Label top;
    align(32);
    L(top);
    body();
    dec(count);
    jnz(top, T_NEAR);
  }

  /// dst = bits 0..n-1 set, n = count in [0, 64] at run time.
  void emit_low_bits(const Xbyak::Reg64& dst, const Xbyak::Reg64& count);

  /// Names the code from here to the next call, for dumps. Data goes below kConstantsSection.
  void section(const char* name);

  const Xbyak::Reg64& args() const { return args_; }

  GpPool gp;
  VecPool vec;
  MaskPool mask;

 private:
  /// Page-aligned, as the published code will be: the assembler aligns loops by the address it
  /// writes to, so any other start would make the bytes depend on where the heap put the buffer.
  static constexpr std::align_val_t kBufferAlign{4096};
  struct FreeBuffer {
    void operator()(uint8_t* p) const noexcept { ::operator delete[](p, kBufferAlign); }
  };
  using Buffer = std::unique_ptr<uint8_t[], FreeBuffer>;

  Generator(std::string name, int callee_saved, bool poison, Buffer buffer, size_t max_bytes);

  /// From here on, `pushed` saved registers are on the stack.
  void note_frame(int pushed);

  std::string name_;
  int callee_saved_;
  bool poison_;
  Buffer buffer_;
  std::vector<CodeSection> sections_;
  CodeFrame frame_;
  Xbyak::Reg64 args_;
};

}  // namespace quern::jit
