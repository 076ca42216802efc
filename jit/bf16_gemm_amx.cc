#include "jit/bf16_gemm_amx.h"

#include <cstddef>

#include "jit/amx_microkernel.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "bf16_gemm.amx";

/// bf16 weights: a tile is 16 lines of a panel, line r holds depths 2 r and 2 r + 1 of 16 columns.
///
/// Codes: eight lines of a panel hold the 32 depths of a tile. They are decoded into one of two
/// places in scratch, in turn, so that the next step's weights are decoded while this step's tiles
/// are still being loaded and multiplied.
class Bf16GemmAmx final : public AmxMicrokernel {
 public:
  explicit Bf16GemmAmx(const Bf16GemmAmxConfig& config)
      : AmxMicrokernel(to_string(config), config,
                       {.k_step_log2 = 5, .panel_lines = config.b == DType::kBF16 ? 16 : 8}),
        b_type_(config.b),
        codes_(config.b != DType::kBF16),
        scaled_(codes_ || config.scaled),
        vbmi_(config.vbmi) {}

 private:
  void emit_setup() override;
  void emit_fetch_weights() override;
  void emit_load_weights(const Xbyak::Tmm& b, int v) override;
  void emit_after_step() override;
  void emit_dot(const Xbyak::Tmm& acc, const Xbyak::Tmm& a, const Xbyak::Tmm& b) override {
    tdpbf16ps(acc, a, b);
  }
  void emit_begin_to_f32() override;
  void emit_row_to_f32(const Vectors& to) override;
  void emit_constants() override;

  DType b_type_;
  bool codes_;
  bool scaled_;
  bool vbmi_;
  Vectors col_scale_;
  Xbyak::Reg64 place_, other_place_;
};

void Bf16GemmAmx::emit_setup() {
  if (!codes_) return;
  section("setup");
  if (b_type_ == DType::kU8) {
    emit_decode_setup();
  } else {
    emit_float8_setup(b_type_, vbmi_);
  }
  place_ = gp.take("weights");
  other_place_ = gp.take("weights.other");
  lea(place_, ptr[tiles() + kWeights]);
  lea(other_place_, ptr[tiles() + kWeights + shape().nr * kTileBytes]);
}

void Bf16GemmAmx::emit_fetch_weights() {
  if (!codes_) return;
  TakenVec low(vec, "low"), codes(vec, "codes");
  for (int v = 0; v < shape().nr; ++v) {
    for (int i = 0; i < 8; ++i) {
      if (b_type_ == DType::kU8) {
        vmovups(*codes, ptr[panel(v) + i * 64]);
        emit_decode_pairs(*low, *codes);
      } else {
        emit_float8(*low, *codes, ptr[panel(v) + i * 64]);
      }
      vmovups(ptr[place_ + v * kTileBytes + 2 * i * 64], *low);
      vmovups(ptr[place_ + v * kTileBytes + (2 * i + 1) * 64], *codes);
    }
  }
}

void Bf16GemmAmx::emit_load_weights(const Xbyak::Tmm& b, int v) {
  if (!codes_) return AmxMicrokernel::emit_load_weights(b, v);
  tileloadd(b, ptr[place_ + line() + v * kTileBytes]);
}

void Bf16GemmAmx::emit_after_step() {
  if (codes_) xchg(place_, other_place_);
}

void Bf16GemmAmx::emit_begin_to_f32() {
  if (codes_) {
    gp.give_back(place_);
    gp.give_back(other_place_);
  }
  if (!scaled_) return;  // the accumulator is the value
  col_scale_ = take_vectors("col_scale.");
  TakenGp col_scale(gp, "col_scale");
  mov(*col_scale, arg(offsetof(GemmArgs, col_scale)));
  for (int v = 0; v < shape().nr; ++v) {
    vmovups(col_scale_[static_cast<size_t>(v)], ptr[*col_scale + v * 64]);
  }
}

void Bf16GemmAmx::emit_row_to_f32(const Vectors& to) {
  for (int v = 0; v < shape().nr; ++v) {
    const Xbyak::Zmm& t = to[static_cast<size_t>(v)];
    vmovups(t, ptr[row() + v * 64]);
    if (scaled_) vmulps(t, t, col_scale_[static_cast<size_t>(v)]);
  }
}

void Bf16GemmAmx::emit_constants() {
  AmxMicrokernel::emit_constants();
  emit_float8_tables();
}

}  // namespace

std::string to_string(const Bf16GemmAmxConfig& config) {
  GemmName name{kFamily, DType::kBF16, config.b, config, {}};
  if (config.scaled) name.options.push_back(kScaledWord);
  if (!config.vbmi) name.options.push_back(kNoVbmiWord);
  return to_string(name);
}

std::optional<Bf16GemmAmxConfig> parse_bf16_gemm_amx(std::string_view text) {
  const auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const Bf16GemmAmxConfig config{name->config, name->b, name->has(kScaledWord),
                                 !name->has(kNoVbmiWord)};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const Bf16GemmAmxConfig& config) {
  if (const char* rule = invalid_codes(config.b, config.vbmi)) return rule;
  if (config.scaled && config.b != DType::kBF16) return "scaled is for bf16: codes always are";
  return invalid_tiles(config);
}

Result<GeneratedCode> generate(const Bf16GemmAmxConfig& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Bf16GemmAmx(config).generate();
}

}  // namespace quern::jit
