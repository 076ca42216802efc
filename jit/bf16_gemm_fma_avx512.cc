#include "jit/bf16_gemm_fma_avx512.h"

#include <cstddef>
#include <vector>

#include "jit/gemm_microkernel.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "bf16_gemm_fma.avx512";

/// vdpbf16ps adds the product of the odd elements of a pair, then that of the even ones, each as an
/// FMA that takes denormals for zero and flushes them. So do two FMAs in that order under MXCSR's
/// DAZ and FTZ, which the K loop therefore switches on; the epilogue runs without them.
///
/// bf16 weights, a step of one pair of depths:     odd = b & 0xffff0000, even = b << 16
/// u8 codes, a step of four depths, bytes 1, 0, 3, 2:
///     byte j of each lane -> 2^23 + u_j as f32 bits -> minus (2^23 + 128) = w_j, exact
/// e4m3 codes, a step of four depths: two vectors of bf16 pairs, each as bf16 weights are.
///
///   for each of the odd and the even elements { decode nr panels; for m { broadcast A; nr FMAs } }
class Bf16GemmFmaAvx512 final : public GemmMicrokernel {
 public:
  explicit Bf16GemmFmaAvx512(const Bf16GemmFmaAvx512Config& config)
      : GemmMicrokernel(to_string(config), config,
                        config.b != DType::kBF16
                            ? Step{.k_step_log2 = 2, .a_bytes = 16, .round_up = false}
                            : Step{.k_step_log2 = 1, .a_bytes = 8, .round_up = true}),
        b_type_(config.b),
        codes_(config.b != DType::kBF16),
        scaled_(codes_ || config.scaled),
        vbmi_(config.vbmi) {}

 private:
  void emit_setup() override;
  void emit_teardown() override;
  void emit_step(int a_offset, int b_offset) override;
  void emit_k_tail() override;
  void emit_to_f32() override;
  void emit_constants() override;
  void emit_load_codes(const Vectors& codes, int b_offset);
  void emit_half(int element, const Vectors& w, int a_offset, int b_offset);
  void emit_code(int slot, const Vectors& codes, const Vectors& w, int a_offset);
  void emit_fmas(const Vectors& w, int a_offset);
  /// Of e4m3 codes.
  void emit_pairs(const Vectors& pairs, int a_offset);
  void emit_decode_panels(const Vectors& low, const Vectors& high, int b_offset);

  DType b_type_;
  bool codes_;
  bool scaled_;
  bool vbmi_;
  Xbyak::Zmm odd_mask_;
};

void Bf16GemmFmaAvx512::emit_setup() {
  section("setup");
  if (b_type_ == DType::kU8) {
    emit_decode_setup();
  } else {
    odd_mask_ = broadcast_word("odd_mask", 0xffff0000);
  }
  if (b_type_ == DType::kE4M3) emit_float8_setup(b_type_, vbmi_);
  emit_save_mxcsr();
  emit_load_mxcsr(true);
}

void Bf16GemmFmaAvx512::emit_teardown() {
  emit_load_mxcsr(false);
}

void Bf16GemmFmaAvx512::emit_fmas(const Vectors& w, int a_offset) {
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    vbroadcastss(a, ptr[row(m) + a_offset]);
    for (int v = 0; v < shape().nr; ++v) vfmadd231ps(acc(m, v), a, w[static_cast<size_t>(v)]);
  }
  give_back(broadcasts);
}

// Element 0 or 1 of the pairs.
void Bf16GemmFmaAvx512::emit_half(int element, const Vectors& w, int a_offset, int b_offset) {
  for (int v = 0; v < shape().nr; ++v) {
    const Xbyak::Zmm& to = w[static_cast<size_t>(v)];
    if (element == 1) {
      vpandd(to, odd_mask_, ptr[panel(v) + b_offset]);
    } else {
      vpslld(to, ptr[panel(v) + b_offset], 16);
    }
  }
  emit_fmas(w, a_offset + 4 * element);
}

void Bf16GemmFmaAvx512::emit_load_codes(const Vectors& codes, int b_offset) {
  for (int v = 0; v < shape().nr; ++v) {
    vmovups(codes[static_cast<size_t>(v)], ptr[panel(v) + b_offset]);
  }
}

void Bf16GemmFmaAvx512::emit_code(int slot, const Vectors& codes, const Vectors& w, int a_offset) {
  for (size_t v = 0; v < w.size(); ++v) emit_decode(w[v], codes[v], slot);
  emit_fmas(w, a_offset + 4 * slot);
}

// The odd elements, then the even ones. Destroys the pairs.
void Bf16GemmFmaAvx512::emit_pairs(const Vectors& pairs, int a_offset) {
  const Vectors odd = take_vectors("odd.");
  for (size_t v = 0; v < pairs.size(); ++v) vpandd(odd[v], odd_mask_, pairs[v]);
  emit_fmas(odd, a_offset + 4);
  give_back(odd);
  for (const Xbyak::Zmm& p : pairs) vpslld(p, p, 16);
  emit_fmas(pairs, a_offset);
}

void Bf16GemmFmaAvx512::emit_decode_panels(const Vectors& low, const Vectors& high, int b_offset) {
  for (size_t v = 0; v < low.size(); ++v) {
    emit_float8(low[v], high[v], ptr[panel(static_cast<int>(v)) + b_offset]);
  }
}

void Bf16GemmFmaAvx512::emit_step(int a_offset, int b_offset) {
  const Vectors w = take_vectors("w.");
  if (b_type_ == DType::kE4M3) {
    const Vectors high = take_vectors("high.");
    emit_decode_panels(w, high, b_offset);
    emit_pairs(w, a_offset);
    emit_pairs(high, a_offset + 8);
    give_back(high);
    give_back(w);
    return;
  }
  if (codes_) {
    const Vectors codes = take_vectors("codes.");
    emit_load_codes(codes, b_offset);
    for (int slot : {1, 0, 3, 2}) emit_code(slot, codes, w, a_offset);
    give_back(codes);
  } else {
    emit_half(1, w, a_offset, b_offset);
    emit_half(0, w, a_offset, b_offset);
  }
  give_back(w);
}

// One to three depths are left. A pair is always multiplied as a whole, its missing element as zero
// from A's padding, and a pair that is missing is not multiplied at all: adding its zeros would
// turn a sum of -0 into +0.
void Bf16GemmFmaAvx512::emit_k_tail() {
  Xbyak::Label done;
  test(k(), 3);
  jz(done, T_NEAR);
  const Vectors w = take_vectors("w.");
  const Vectors codes = take_vectors("codes.");
  const bool floats = b_type_ == DType::kE4M3;
  if (floats) {
    emit_decode_panels(w, codes, 0);
    emit_pairs(w, 0);
  } else {
    emit_load_codes(codes, 0);
    for (int slot : {1, 0}) emit_code(slot, codes, w, 0);
  }
  // Only three depths reach into the second pair.
  test(k(), 1);
  jz(done, T_NEAR);
  test(k(), 2);
  jz(done, T_NEAR);
  if (floats) {
    emit_pairs(codes, 8);
  } else {
    for (int slot : {3, 2}) emit_code(slot, codes, w, 0);
  }
  give_back(codes);
  give_back(w);
  L(done);
}

void Bf16GemmFmaAvx512::emit_to_f32() {
  if (scaled_) emit_scale_columns();  // else the accumulator is the value
}

void Bf16GemmFmaAvx512::emit_constants() {
  GemmMicrokernel::emit_constants();
  emit_float8_tables();
}

}  // namespace

std::string to_string(const Bf16GemmFmaAvx512Config& config) {
  GemmName name{kFamily, DType::kF32, config.b, config, {}};
  if (config.scaled) name.options.push_back(kScaledWord);
  if (!config.vbmi) name.options.push_back(kNoVbmiWord);
  return to_string(name);
}

std::optional<Bf16GemmFmaAvx512Config> parse_bf16_gemm_fma_avx512(std::string_view text) {
  const auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const Bf16GemmFmaAvx512Config config{name->config, name->b, name->has(kScaledWord),
                                       !name->has(kNoVbmiWord)};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const Bf16GemmFmaAvx512Config& config) {
  if (const char* rule = invalid_codes(config.b, config.vbmi)) return rule;
  if (config.scaled && config.b != DType::kBF16) return "scaled is for bf16: codes always are";
  // bf16: a decoded vector a panel, the mask, the activation. u8: codes and a decoded vector a
  // panel, three constants, the activation. e4m3: two vectors of pairs and a decoded one a panel,
  // five constants, the mask, the activation.
  const int others = config.b == DType::kU8     ? 2 * config.nr + 4
                     : config.b == DType::kE4M3 ? 3 * config.nr + 2 + kFloat8Registers
                                                : config.nr + 2;
  return invalid_shape(config, others);
}

Result<GeneratedCode> generate(const Bf16GemmFmaAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Bf16GemmFmaAvx512(config).generate();
}

}  // namespace quern::jit
