#include "jit/nvfp4_gemm_avx512.h"

#include <cstddef>
#include <vector>

#include "jit/gemm_microkernel.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "nvfp4_gemm.avx512";

/// A step is a line of each panel, eight depths of 16 columns, and two lines share block scales:
///
///   for each of four pairs { decode nr panels; for m { broadcast A; nr dots } }
///
/// The first pair of every second line is preceded, panel by panel, by its keep and below from 16
/// bytes: all panels' at once would leave the dots waiting (2.5 % at four rows from L2, Zen 5).
///
/// A dot is vdpbf16ps, or two FMAs as in bf16_gemm_fma.avx512. One chain an element, depth
/// ascending, whatever mr, nr and the cuts of K are.
class Nvfp4GemmAvx512 final : public GemmMicrokernel {
 public:
  explicit Nvfp4GemmAvx512(const Nvfp4GemmAvx512Config& config)
      : GemmMicrokernel(to_string(config), config,
                        {.k_step_log2 = 3, .a_bytes = config.fma ? 32 : 16, .round_up = false}),
        fma_(config.fma) {}

 private:
  static constexpr int kPairs = 4;
  static constexpr int kBlockBytes = 128;   ///< lines that share scales
  static constexpr int kScalesOfALine = 8;  ///< so far scales move on with each line
  /// Of scales, as far ahead as kFarPrefetch lets four panels of codes be.
  static constexpr int kScalesAhead = 256;

  /// What of a pair of depths exists.
  enum class Pair { kWhole, kFirstOnly };

  void emit_setup() override;
  void emit_teardown() override;
  void emit_step(int a_offset, int b_offset) override;
  void emit_advance(int steps) override;
  void emit_k_tail() override;
  void emit_to_f32() override { emit_scale_columns(); }
  void emit_constants() override;
  void emit_begin_block(const Vectors& to, int b_offset);
  void emit_decoded(const Vectors& to, int b_offset, int pair);
  void emit_pair(const Vectors& b, int a_offset, Pair pair);
  void emit_dots(const Vectors& b, int a_offset, Pair pair);
  void emit_fmas(const Vectors& w, int a_offset);
  int pair_bytes() const { return fma_ ? 8 : 4; }

  bool fma_;
  Xbyak::Zmm odd_mask_;
  Vectors keep_, below_;
  Xbyak::Reg64 scale_;
};

void Nvfp4GemmAvx512::emit_setup() {
  section("setup");
  emit_nvfp4_setup();
  keep_ = take_vectors("keep.");
  below_ = take_vectors("below.");
  scale_ = gp.take("scale");
  mov(scale_, arg(offsetof(GemmArgs, scale)));
  if (!fma_) return;
  odd_mask_ = broadcast_word("odd_mask", 0xffff0000);
  emit_save_mxcsr();
  emit_load_mxcsr(true);
}

void Nvfp4GemmAvx512::emit_teardown() {
  if (fma_) emit_load_mxcsr(false);
  gp.give_back(scale_);
  give_back(keep_);
  give_back(below_);
}

void Nvfp4GemmAvx512::emit_advance(int steps) {
  GemmMicrokernel::emit_advance(steps);
  add(scale_, kScalesOfALine * steps);
}

// Decodes the first pair. Where lines are counted one by one, scale_ may stand between two blocks.
void Nvfp4GemmAvx512::emit_begin_block(const Vectors& to, int b_offset) {
  const int offset = b_offset / 64 * kScalesOfALine;
  TakenGp place(gp, "scale.panel");
  mov(*place, scale_);
  if (b_offset == 0) and_(*place, -2 * kScalesOfALine);
  for (size_t v = 0; v < to.size(); ++v) {
    if (v > 0) add(*place, arg(offsetof(GemmArgs, scale_stride)));
    if (b_offset == 0 && shape().prefetch != 0) prefetcht0(ptr[*place + kScalesAhead]);
    emit_block_scales(keep_[v], below_[v], ptr[*place + offset]);
    emit_nvfp4(to[v], ptr[panel(static_cast<int>(v)) + b_offset], 0, keep_[v], below_[v]);
  }
}

void Nvfp4GemmAvx512::emit_decoded(const Vectors& to, int b_offset, int pair) {
  for (size_t v = 0; v < to.size(); ++v) {
    emit_nvfp4(to[v], ptr[panel(static_cast<int>(v)) + b_offset], pair, keep_[v], below_[v]);
  }
}

// kFirstOnly reads two bytes of the row and multiplies the missing element as zero: the byte after
// the row may not be mapped, and what lies there may be a NaN.
void Nvfp4GemmAvx512::emit_dots(const Vectors& b, int a_offset, Pair pair) {
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    if (pair == Pair::kWhole) {
      vpbroadcastd(a, ptr[row(m) + a_offset]);
    } else {
      TakenGp last(gp, "last");
      const Xbyak::Reg32 last32((*last).getIdx());
      movzx(last32, word[row(m) + a_offset]);
      vpbroadcastd(a, last32);
    }
    for (int v = 0; v < shape().nr; ++v) vdpbf16ps(acc(m, v), a, b[static_cast<size_t>(v)]);
  }
  give_back(broadcasts);
}

void Nvfp4GemmAvx512::emit_fmas(const Vectors& w, int a_offset) {
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    vbroadcastss(a, ptr[row(m) + a_offset]);
    for (int v = 0; v < shape().nr; ++v) vfmadd231ps(acc(m, v), a, w[static_cast<size_t>(v)]);
  }
  give_back(broadcasts);
}

// Widened rows are padded with zeros to whole pairs.
void Nvfp4GemmAvx512::emit_pair(const Vectors& b, int a_offset, Pair pair) {
  if (!fma_) return emit_dots(b, a_offset, pair);
  const Vectors odd = take_vectors("odd.");
  for (size_t v = 0; v < b.size(); ++v) vpandd(odd[v], odd_mask_, b[v]);
  emit_fmas(odd, a_offset + 4);
  give_back(odd);
  for (const Xbyak::Zmm& w : b) vpslld(w, w, 16);
  emit_fmas(b, a_offset);
}

void Nvfp4GemmAvx512::emit_step(int a_offset, int b_offset) {
  const Vectors b = take_vectors("b.");
  for (int pair = 0; pair < kPairs; ++pair) {
    if (pair == 0 && b_offset % kBlockBytes == 0) {
      emit_begin_block(b, b_offset);
    } else {
      emit_decoded(b, b_offset, pair);
    }
    emit_pair(b, a_offset + pair * pair_bytes(), Pair::kWhole);
  }
  give_back(b);
}

// One to seven depths are left; what counted all of them counts these. A pair that is missing is
// not multiplied: adding its zeros would turn a sum of -0 into +0.
void Nvfp4GemmAvx512::emit_k_tail() {
  Xbyak::Label done;
  and_(k(), 2 * kPairs - 1);
  jz(done, T_NEAR);
  const Vectors b = take_vectors("b.");
  for (int pair = 0; pair < kPairs; ++pair) {
    const int before = 2 * pair, a_offset = pair * pair_bytes();
    if (pair == 0) {
      emit_begin_block(b, 0);
    } else {
      emit_decoded(b, 0, pair);
    }
    if (pair + 1 < kPairs) {
      Xbyak::Label one;
      cmp(k(), before + 1);
      je(one, T_NEAR);
      emit_pair(b, a_offset, Pair::kWhole);
      cmp(k(), before + 2);
      je(done, T_NEAR);
      Xbyak::Label more;
      jmp(more, T_NEAR);
      L(one);
      emit_pair(b, a_offset, Pair::kFirstOnly);
      jmp(done, T_NEAR);
      L(more);
    } else {
      emit_pair(b, a_offset, Pair::kFirstOnly);
    }
  }
  give_back(b);
  L(done);
}

void Nvfp4GemmAvx512::emit_constants() {
  GemmMicrokernel::emit_constants();
  emit_nvfp4_tables();
}

}  // namespace

std::string to_string(const Nvfp4GemmAvx512Config& config) {
  return to_string(
      GemmName{kFamily, config.fma ? DType::kF32 : DType::kBF16, DType::kE2M1, config, {}});
}

std::optional<Nvfp4GemmAvx512Config> parse_nvfp4_gemm_avx512(std::string_view text) {
  const auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const Nvfp4GemmAvx512Config config{name->config, name->a == DType::kF32};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

Nvfp4Registers nvfp4_registers(const Nvfp4GemmAvx512Config& config) {
  // keep, below and the decoded vector of a panel; tables and places, the activation. An FMA: the
  // odd elements, and the mask for them.
  return config.fma ? Nvfp4Registers{4, 3} : Nvfp4Registers{3, 2};
}

const char* invalid(const Nvfp4GemmAvx512Config& config) {
  if (!config.fma && !config.bf16) return "the dot products need AVX512-BF16";
  const Nvfp4Registers registers = nvfp4_registers(config);
  return invalid_shape(config, registers.panel * config.nr + registers.other);
}

Result<GeneratedCode> generate(const Nvfp4GemmAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Nvfp4GemmAvx512(config).generate();
}

}  // namespace quern::jit
