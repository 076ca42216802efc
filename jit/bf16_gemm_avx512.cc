#include "jit/bf16_gemm_avx512.h"

#include <cstddef>
#include <vector>

#include "jit/gemm_microkernel.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "bf16_gemm.avx512";

/// bf16 weights: zmm lane c of panel v holds two consecutive depths of column 16 v + c, and a
/// broadcast of two bf16 of a row of A meets them in vdpbf16ps. One chain of dot products an
/// element, depth ascending, whatever mr, nr and the cuts of K are.
///
/// Codes: 64 bytes of a panel are four depths of 16 columns, so a step decodes them into two
/// registers of bf16 pairs and runs two dot products an element.
class Bf16GemmAvx512 final : public GemmMicrokernel {
 public:
  explicit Bf16GemmAvx512(const Bf16GemmAvx512Config& config)
      : GemmMicrokernel(to_string(config), config,
                        config.b != DType::kBF16
                            ? Step{.k_step_log2 = 2, .a_bytes = 8, .round_up = false}
                            : Step{.k_step_log2 = 1, .a_bytes = 4, .round_up = false}),
        b_type_(config.b),
        codes_(config.b != DType::kBF16),
        scaled_(codes_ || config.scaled),
        vbmi_(config.vbmi) {}

 private:
  /// What of a pair of depths exists.
  enum class Pair { kWhole, kFirstOnly };

  void emit_setup() override;
  void emit_step(int a_offset, int b_offset) override;
  void emit_k_tail() override;
  void emit_to_f32() override;
  void emit_constants() override;
  void emit_load_panels(const Vectors& b, int b_offset);
  void emit_decode_panels(const Vectors& low, const Vectors& high, int b_offset);
  void emit_dots(const Vectors& b, int a_offset, Pair pair);

  DType b_type_;
  bool codes_;
  bool scaled_;
  bool vbmi_;
};

void Bf16GemmAvx512::emit_setup() {
  if (!codes_) return;
  section("setup");
  if (b_type_ == DType::kU8) {
    emit_decode_setup();
  } else {
    emit_float8_setup(b_type_, vbmi_);
  }
}

void Bf16GemmAvx512::emit_load_panels(const Vectors& b, int b_offset) {
  for (int v = 0; v < shape().nr; ++v) {
    vmovups(b[static_cast<size_t>(v)], ptr[panel(v) + b_offset]);
  }
}

void Bf16GemmAvx512::emit_decode_panels(const Vectors& low, const Vectors& high, int b_offset) {
  if (b_type_ == DType::kU8) {
    emit_load_panels(high, b_offset);
    for (size_t v = 0; v < low.size(); ++v) emit_decode_pairs(low[v], high[v]);
    return;
  }
  for (size_t v = 0; v < low.size(); ++v) {
    emit_float8(low[v], high[v], ptr[panel(static_cast<int>(v)) + b_offset]);
  }
}

// kFirstOnly reads two bytes of the row and multiplies the missing element as zero: the byte after
// the row may not be mapped, and what lies there may be a NaN.
void Bf16GemmAvx512::emit_dots(const Vectors& b, int a_offset, Pair pair) {
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

void Bf16GemmAvx512::emit_step(int a_offset, int b_offset) {
  const Vectors b = take_vectors("b.");
  if (codes_) {
    const Vectors high = take_vectors("b.high.");
    emit_decode_panels(b, high, b_offset);
    emit_dots(b, a_offset, Pair::kWhole);
    emit_dots(high, a_offset + 4, Pair::kWhole);
    give_back(high);
  } else {
    emit_load_panels(b, b_offset);
    emit_dots(b, a_offset, Pair::kWhole);
  }
  give_back(b);
}

void Bf16GemmAvx512::emit_k_tail() {
  Xbyak::Label done;
  const Vectors b = take_vectors("b.");
  if (!codes_) {
    test(k(), 1);
    jz(done, T_NEAR);
    emit_load_panels(b, 0);
    emit_dots(b, 0, Pair::kFirstOnly);
  } else {
    const Vectors high = take_vectors("b.high.");
    Xbyak::Label two_or_three;
    test(k(), 3);
    jz(done, T_NEAR);
    emit_decode_panels(b, high, 0);
    test(k(), 2);
    jnz(two_or_three, T_NEAR);
    emit_dots(b, 0, Pair::kFirstOnly);
    jmp(done, T_NEAR);
    L(two_or_three);
    emit_dots(b, 0, Pair::kWhole);
    test(k(), 1);
    jz(done, T_NEAR);
    emit_dots(high, 4, Pair::kFirstOnly);
    give_back(high);
  }
  L(done);
  give_back(b);
}

void Bf16GemmAvx512::emit_to_f32() {
  if (scaled_) emit_scale_columns();  // else the accumulator is the value
}

void Bf16GemmAvx512::emit_constants() {
  GemmMicrokernel::emit_constants();
  emit_float8_tables();
}

}  // namespace

std::string to_string(const Bf16GemmAvx512Config& config) {
  GemmName name{kFamily, DType::kBF16, config.b, config, {}};
  if (config.scaled) name.options.push_back(kScaledWord);
  if (!config.vbmi) name.options.push_back(kNoVbmiWord);
  return to_string(name);
}

std::optional<Bf16GemmAvx512Config> parse_bf16_gemm_avx512(std::string_view text) {
  const auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const Bf16GemmAvx512Config config{name->config, name->b, name->has(kScaledWord),
                                    !name->has(kNoVbmiWord)};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const Bf16GemmAvx512Config& config) {
  if (const char* rule = invalid_codes(config.b, config.vbmi)) return rule;
  if (config.scaled && config.b != DType::kBF16) return "scaled is for bf16: codes always are";
  if (!config.bf16) return "the dot products need AVX512-BF16";
  // Codes: two decoded vectors a panel, three constants (e4m3: five), one temporary; the activation
  // comes later.
  const int others = config.b == DType::kU8     ? 2 * config.nr + 4
                     : config.b == DType::kE4M3 ? 2 * config.nr + 1 + kFloat8Registers
                                                : config.nr + 1;
  return invalid_shape(config, others);
}

Result<GeneratedCode> generate(const Bf16GemmAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Bf16GemmAvx512(config).generate();
}

}  // namespace quern::jit
