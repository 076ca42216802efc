// What a kernel leaves of its caller's state (reliability.md, A8 and A9): a trampoline calls every
// kernel of the config matrix with a pattern in every register and a control word in every unit,
// and records what comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "jit/gemm_args.h"
#include "tests/jit/amx_fixture.h"
#include "tests/jit/config_matrix.h"
#include "tests/jit/kernel_fixture.h"
#include "xbyak/xbyak.h"

namespace quern::jit {
namespace {

constexpr int kCalleeSaved[] = {3, 5, 12, 13, 14, 15};  // rbx, rbp, r12..r15
constexpr size_t kStackWords = 32;                      // of the caller's frame that are watched

/// What goes in and what comes out. The trampoline has its address, so there is one.
struct alignas(64) CallState {
  uint8_t vectors[32][64];
  uint64_t kernel, args;
  uint64_t saved_in[6], saved_out[6];
  uint64_t stack_in, stack_out;
  uint64_t stack_words[kStackWords];
  uint64_t flags_out;
  uint32_t mxcsr_in, mxcsr_out;
  uint16_t x87_in, x87_out;
  uint8_t x87_environment[28];
};
CallState g_state;

class Trampoline final : public Xbyak::CodeGenerator {
 public:
  Trampoline() : Xbyak::CodeGenerator(8192, Xbyak::DontSetProtectRWE) {
    const auto field = [this](size_t offset) { return qword[rdi + static_cast<int>(offset)]; };
    const auto load_state = [this] { mov(rdi, reinterpret_cast<size_t>(&g_state)); };
    for (int r : kCalleeSaved) push(Xbyak::Reg64(r));
    load_state();
    // Six pushes and the return address leave 8 bytes to alignment; then a frame full of canaries.
    sub(rsp, 8 + 8 * static_cast<int>(kStackWords));
    mov(rax, kCanary);
    for (size_t i = 0; i < kStackWords; ++i) mov(qword[rsp + static_cast<int>(8 * i)], rax);
    mov(field(offsetof(CallState, stack_in)), rsp);
    stmxcsr(dword[rsp - 8]);  // below the frame: free until the call
    mov(eax, dword[rsp - 8]);
    mov(dword[rdi + static_cast<int>(offsetof(CallState, mxcsr_out))], eax);
    ldmxcsr(dword[rdi + static_cast<int>(offsetof(CallState, mxcsr_in))]);
    fldcw(word[rdi + static_cast<int>(offsetof(CallState, x87_in))]);
    for (int i = 0; i < 32; ++i) {
      vmovdqu64(Xbyak::Zmm(i), ptr[rdi + static_cast<int>(offsetof(CallState, vectors)) + 64 * i]);
    }
    for (int i = 0; i < 6; ++i) {
      mov(Xbyak::Reg64(kCalleeSaved[i]), field(offsetof(CallState, saved_in) + 8 * size_t(i)));
    }
    mov(rax, field(offsetof(CallState, kernel)));
    mov(rdi, field(offsetof(CallState, args)));
    call(rax);
    load_state();
    for (int i = 0; i < 6; ++i) {
      mov(field(offsetof(CallState, saved_out) + 8 * size_t(i)), Xbyak::Reg64(kCalleeSaved[i]));
    }
    mov(field(offsetof(CallState, stack_out)), rsp);
    mov(rsp, field(offsetof(CallState, stack_in)));  // whatever came back
    for (size_t i = 0; i < kStackWords; ++i) {
      mov(rax, qword[rsp + static_cast<int>(8 * i)]);
      mov(field(offsetof(CallState, stack_words) + 8 * i), rax);
    }
    pushfq();
    pop(rax);
    mov(field(offsetof(CallState, flags_out)), rax);
    cld();
    for (int i = 0; i < 32; ++i) {
      vmovdqu64(ptr[rdi + static_cast<int>(offsetof(CallState, vectors)) + 64 * i], Xbyak::Zmm(i));
    }
    mov(eax, dword[rdi + static_cast<int>(offsetof(CallState, mxcsr_out))]);  // the caller's own
    stmxcsr(dword[rdi + static_cast<int>(offsetof(CallState, mxcsr_out))]);
    mov(dword[rsp], eax);
    ldmxcsr(dword[rsp]);
    fnstcw(word[rdi + static_cast<int>(offsetof(CallState, x87_out))]);
    fnstenv(ptr[rdi + static_cast<int>(offsetof(CallState, x87_environment))]);
    fninit();
    add(rsp, 8 + 8 * static_cast<int>(kStackWords));
    for (int i = 5; i >= 0; --i) pop(Xbyak::Reg64(kCalleeSaved[i]));
    vzeroupper();
    ret();
    setProtectModeRE();
  }

  static constexpr uint64_t kCanary = 0xc0ffee00c0ffee00u;
};

/// Arguments for one call of any kernel, all pointers into one block of tiny numbers: 0x01010101 is
/// 2.4e-38 as f32, so that products underflow and control words matter.
class Arena {
 public:
  Arena() : bytes_(kBytes, 1) {}
  GemmArgs gemm(bool last, int rows, int blocks) {
    GemmArgs args;
    args.m = rows;
    args.blocks = blocks;
    args.tiles = bytes_.data() + kBytes / 4;
    args.a = bytes_.data();
    args.a_stride = 64;
    args.b = bytes_.data();
    args.panel_stride = 256;
    args.k = 19;  // rounds, rest and a partial step
    args.acc = bytes_.data() + kBytes * 3 / 4;
    args.acc_step = last ? 0 : 4096;
    args.last = last;
    args.c = bytes_.data() + kBytes / 2;
    args.c_stride = 256;
    args.n = 5;
    args.row_scale = args.col_scale = args.bias = args.bias_up =
        reinterpret_cast<const float*>(bytes_.data());
    args.row_sum = reinterpret_cast<const int32_t*>(bytes_.data());
    args.residual = bytes_.data();
    args.residual_stride = 256;
    args.control = control_;
    args.groups = last ? 3 : 2;
    args.group_steps = 5;  // a turn and a rest
    args.scale = args.zero = args.group_sum = bytes_.data();
    args.scale_stride = args.zero_stride = 64 * 3;
    args.group_sum_stride = 4 * rows;
    return args;
  }
  QuantizeRowsArgs quantize_rows(bool with_nan) {
    std::fill_n(bytes_.begin(), 4, with_nan ? uint8_t{0xff} : uint8_t{1});
    QuantizeRowsArgs args;
    args.a = bytes_.data();
    args.a_stride = 512;
    args.rows = 3;
    args.k = 83;
    args.group = 32;
    args.q = reinterpret_cast<int8_t*>(bytes_.data() + kBytes / 2);
    args.q_stride = 128;
    args.scale = reinterpret_cast<float*>(bytes_.data() + kBytes / 2 + 1024);
    args.sums = reinterpret_cast<int32_t*>(bytes_.data() + kBytes / 2 + 2048);
    args.sum_stride = 16;
    return args;
  }
  Int4PackArgs int4_pack(bool missing_depths) {
    std::fill(std::begin(column_), std::end(column_), bytes_.data());
    for (int32_t i = 0; i < 19 * 8; ++i) depths_[i] = missing_depths && i % 3 == 0 ? -1 : i;
    Int4PackArgs args;
    args.words = bytes_.data();
    args.row_step = 128;
    args.column = column_;
    args.depths = depths_;
    args.to = bytes_.data() + kBytes / 2;
    args.to_step = 2048;
    args.lines = 19;
    args.panels = 2;
    args.columns = missing_depths ? 5 : 16;
    return args;
  }
  GroupedDecodeArgs grouped_decode(bool one_line) {
    void* to = bytes_.data() + kBytes / 2;
    size_t space = kBytes / 2;
    GroupedDecodeArgs args;
    args.b = args.zero = bytes_.data();
    args.panel_stride = 64 * 15;
    args.panels = one_line ? 1 : 2;
    args.groups = one_line ? 1 : 3;
    args.group_lines = one_line ? 1 : 5;
    args.zero_stride = 48;
    args.to = std::align(64, 1, to, space);
    args.to_stride = 256 * 15;
    args.ahead = -1;
    return args;
  }
  Nvfp4DecodeArgs nvfp4_decode(bool one_block) {
    void* to = bytes_.data() + kBytes / 2;
    size_t space = kBytes / 2;
    Nvfp4DecodeArgs args;
    args.b = args.scale = bytes_.data();
    args.panel_stride = 128 * 5;
    args.panels = one_block ? 1 : 2;
    args.blocks = one_block ? 1 : 5;
    args.scale_stride = 80;
    args.to = std::align(64, 1, to, space);
    args.to_stride = 512 * 5;
    args.ahead = -1;
    return args;
  }

 private:
  static constexpr size_t kBytes = 64 << 10;
  std::vector<uint8_t> bytes_;
  uint32_t control_[2] = {};
  const void* column_[16] = {};
  int32_t depths_[19 * 8] = {};
};

template <typename Fixture>
class CallContractOf : public Fixture {
 protected:
  /// The kernels of one level, every one eight times.
  void check_kernels(IsaLevel level) {
    constexpr uint32_t kFtz = 0x8000, kDaz = 0x0040, kDefault = 0x1f80;
    constexpr uint32_t kMxcsr[] = {kDefault, kDefault | kFtz, kDefault | kDaz,
                                   kDefault | kFtz | kDaz | 0x6000};  // and rounding toward zero
    constexpr uint16_t kX87[] = {0x037f, 0x027f, 0x0f7f, 0x047f};
    const CodeMemory memory;
    Arena arena;
    int calls = 0, not_run = 0;
    for (const AnyKernel& kernel : every_kernel()) {
      if (kernel.level != level) continue;
      if ((kernel.bf16 && !this->features_.bf16) || (kernel.vbmi && !this->features_.vbmi)) {
        ++not_run;
        continue;
      }
      const auto code = kernel.make();
      ASSERT_TRUE(code.ok()) << kernel.name;
      const auto block = memory.publish(code->bytes.data(), code->bytes.size());
      ASSERT_TRUE(block.ok()) << block.status().message();
      for (size_t setting = 0; setting < 4; ++setting) {
        for (const bool other_way_out : {false, true}) {
          // Kernels without tiles move through blocks of rows, and write to their arguments.
          const int blocks_of_rows =
              level == IsaLevel::kAvx512 ? 1 + static_cast<int>(setting % 2) : 1;
          GemmArgs gemm = arena.gemm(other_way_out, kernel.rows, blocks_of_rows);
          const QuantizeRowsArgs rows = arena.quantize_rows(other_way_out);
          const Int4PackArgs codes = arena.int4_pack(other_way_out);
          const GroupedDecodeArgs panels = arena.grouped_decode(other_way_out);
          const Nvfp4DecodeArgs blocks = arena.nvfp4_decode(other_way_out);
          // In the order of KernelArgs.
          const void* const args[] = {&gemm, &rows, &codes, &panels, &blocks};
          call((*block)->entry(), args[static_cast<size_t>(kernel.args)], kMxcsr[setting],
               kX87[setting]);
          ASSERT_NO_FATAL_FAILURE(expect_contract(kernel.name));
          ASSERT_NO_FATAL_FAILURE(after_call(kernel.name));
          ++calls;
        }
      }
    }
    EXPECT_GT(calls, 8 * 500);
    this->RecordProperty("calls", calls);
    this->RecordProperty("not_run_without_their_instructions", not_run);
  }
  virtual void after_call(const std::string& /*name*/) {}

  void call(const void* entry, const void* args, uint32_t mxcsr, uint16_t x87) {
    std::memset(g_state.vectors, 0xa5, sizeof g_state.vectors);
    for (size_t i = 0; i < 6; ++i) {
      g_state.saved_in[i] = 0x1111111111111111u * (i + 1);
      g_state.saved_out[i] = 0;
    }
    g_state.kernel = reinterpret_cast<uintptr_t>(entry);
    g_state.args = reinterpret_cast<uintptr_t>(args);
    g_state.mxcsr_in = mxcsr;
    g_state.x87_in = x87;
    trampoline_.getCode<void (*)()>()();
  }

  void expect_contract(const std::string& name) const {
    for (size_t i = 0; i < 6; ++i) {
      ASSERT_EQ(g_state.saved_out[i], g_state.saved_in[i]) << name << ": callee-saved " << i;
    }
    ASSERT_EQ(g_state.stack_out, g_state.stack_in) << name;
    for (const uint64_t word : g_state.stack_words) ASSERT_EQ(word, Trampoline::kCanary) << name;
    ASSERT_EQ(g_state.flags_out & 0x400, 0u) << name << ": direction flag";
    constexpr uint32_t kSticky = 0x3f;  // the flags that arithmetic raises; ops keeps them inside
    ASSERT_EQ(g_state.mxcsr_out & ~kSticky, g_state.mxcsr_in & ~kSticky) << name;
    ASSERT_EQ(g_state.x87_out, g_state.x87_in) << name;
    uint16_t tags;
    std::memcpy(&tags, g_state.x87_environment + 8, sizeof tags);
    ASSERT_EQ(tags, 0xffff) << name << ": the x87 stack is not empty";
    // SSE code of the caller is slow as long as anything is left above bit 127 of zmm0..15.
    static constexpr uint8_t kZero[48] = {};
    for (int v = 0; v < 16; ++v) {
      ASSERT_EQ(std::memcmp(g_state.vectors[v] + 16, kZero, sizeof kZero), 0)
          << name << " zmm" << v;
    }
  }

 private:
  Trampoline trampoline_;
};

using CallContract = CallContractOf<KernelTest>;

TEST_F(CallContract, EveryKernelUnderEveryControlWord) {
  check_kernels(IsaLevel::kAvx512);
}

class AmxCallContract : public CallContractOf<AmxKernelTest> {
  void after_call(const std::string& name) override {
    ASSERT_EQ(tiles_.store(), TileConfig{}) << name << " leaves tiles configured";
  }
  TileConfigCode tiles_;
};

TEST_F(AmxCallContract, EveryKernelUnderEveryControlWord) {
  check_kernels(IsaLevel::kAmx);
}

// The trampoline itself: a function that breaks one rule is caught breaking that one.
class CallContractItself : public CallContract {
 protected:
  template <typename Emit>
  void call_bad(const Emit& emit) {
    Xbyak::CodeGenerator g(4096, Xbyak::DontSetProtectRWE);
    emit(g);
    g.ret();
    g.setProtectModeRE();
    call(g.getCode(), nullptr, 0x1f80, 0x037f);
  }
};

TEST_F(CallContractItself, SeesEveryViolation) {
  using G = Xbyak::CodeGenerator;
  call_bad([](G& g) { g.vzeroupper(); });
  expect_contract("nothing wrong");
  ASSERT_FALSE(HasFatalFailure());
  for (int i = 0; i < 6; ++i) {
    call_bad([i](G& g) { g.inc(Xbyak::Reg64(kCalleeSaved[i])); });
    EXPECT_EQ(g_state.saved_out[i], g_state.saved_in[i] + 1);
  }
  call_bad([](G& g) { g.mov(g.qword[g.rsp + 8 + 8 * 3], 0); });
  EXPECT_EQ(g_state.stack_words[3], 0u);
  call_bad([](G& g) {
    g.pop(g.rax);
    g.sub(g.rsp, 64);
    g.push(g.rax);
  });
  EXPECT_EQ(g_state.stack_out, g_state.stack_in - 64);
  call_bad([](G& g) { g.std(); });
  EXPECT_NE(g_state.flags_out & 0x400, 0u);
  call_bad([](G& g) {
    g.mov(g.dword[g.rsp - 8], 0x9f80);
    g.ldmxcsr(g.dword[g.rsp - 8]);
  });
  EXPECT_EQ(g_state.mxcsr_out, 0x9f80u);
  call_bad([](G& g) {
    g.mov(g.word[g.rsp - 8], 0x027f);
    g.fldcw(g.word[g.rsp - 8]);
  });
  EXPECT_EQ(g_state.x87_out, 0x027f);
  call_bad([](G& g) { g.fldz(); });
  uint16_t tags;
  std::memcpy(&tags, g_state.x87_environment + 8, sizeof tags);
  EXPECT_NE(tags, 0xffff);
  call_bad([](G& g) { g.nop(); });
  EXPECT_EQ(g_state.vectors[7][16], 0xa5);
}

}  // namespace
}  // namespace quern::jit
