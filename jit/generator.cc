#include "jit/generator.h"

#include <utility>

namespace quern::jit {
namespace {

// rbx, rbp, r12, r13, r14, r15: what the System V ABI lets a function use only after saving it.
constexpr int kCalleeSaved[] = {3, 5, 12, 13, 14, 15};
// rax, rcx, rdx, rsi, r8..r11; rdi holds the argument from the start.
constexpr int kVolatile[] = {0, 1, 2, 6, 8, 9, 10, 11};
constexpr int kArgs = 7;

std::vector<int> gp_order(int callee_saved) {
  std::vector<int> order(std::begin(kVolatile), std::end(kVolatile));
  order.push_back(kArgs);
  for (int reg : kCalleeSaved) {
    if (callee_saved-- > 0) order.push_back(reg);
  }
  return order;
}

std::vector<int> count_up(int first, int last) {
  std::vector<int> order;
  for (int i = first; i <= last; ++i) order.push_back(i);
  return order;
}

}  // namespace

Generator::Generator(std::string name, int callee_saved, bool poison, size_t max_bytes)
    : Generator(std::move(name), callee_saved, poison,
                Buffer(new (kBufferAlign) uint8_t[max_bytes]), max_bytes) {}

Generator::Generator(std::string name, int callee_saved, bool poison, Buffer buffer,
                     size_t max_bytes)
    : Xbyak::CodeGenerator(max_bytes, buffer.get()),
      gp("gp", gp_order(callee_saved)),
      vec("zmm", count_up(0, 31)),
      mask("k", count_up(1, 7)),
      name_(std::move(name)),
      callee_saved_(callee_saved),
      poison_(poison),
      buffer_(std::move(buffer)),
      args_(gp.take_index(kArgs, "args")) {}

Result<GeneratedCode> Generator::generate() {
  try {
    emit();
    ready();  // resolves labels; the buffer is ours, so no protection changes
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory while a kernel was generated");
  } catch (const Xbyak::Error& e) {
    return Status(StatusCode::kInternal, "the assembler refused the kernel (Xbyak error {0})",
                  static_cast<int>(e));
  } catch (const std::exception&) {
    return Status(StatusCode::kInternal, "a generator broke its own register or size rules");
  }
  GeneratedCode code;
  code.name = name_;
  code.bytes.assign(getCode(), getCode() + getSize());
  code.register_map = gp.map() + '\n' + vec.map() + '\n' + mask.map();
  code.sections = std::move(sections_);
  code.frame = std::move(frame_);
  return code;
}

void Generator::emit_prologue() {
  section("prologue");
  for (int i = 0; i < callee_saved_; ++i) {
    push(Xbyak::Reg64(kCalleeSaved[i]));
    frame_.saved.push_back(kCalleeSaved[i]);
    note_frame(i + 1);
  }
  if (!poison_) return;
  const Xbyak::Reg64 tmp = rax;
  mov(tmp, 0xffc0a5a5ffc0a5a5ull);
  vpbroadcastq(zmm0, tmp);
  for (int i = 1; i < 32; ++i) vmovdqa64(Xbyak::Zmm(i), zmm0);
  for (int i = 1; i < 8; ++i) kmovq(Xbyak::Opmask(i), tmp);
}

void Generator::emit_return() {
  section("return");
  vzeroupper();
  for (int i = callee_saved_ - 1; i >= 0; --i) {
    pop(Xbyak::Reg64(kCalleeSaved[i]));
    note_frame(i);
  }
  ret();
  note_frame(callee_saved_);
}

void Generator::note_frame(int pushed) {
  frame_.changes.push_back({getSize(), pushed});
}

void Generator::emit_low_bits(const Xbyak::Reg64& dst, const Xbyak::Reg64& count) {
  mov(dst, -1);
  bzhi(dst, dst, count);  // BMI2: every AVX-512 machine has it
}

void Generator::section(const char* name) {
  sections_.push_back({getSize(), name});
}

}  // namespace quern::jit
