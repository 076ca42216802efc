#include "jit/int8_gemm_amx.h"

#include <cstddef>

#include "jit/amx_microkernel.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "int8_gemm.amx";
constexpr std::string_view kWide = "wide";

/// A tile of weights is 16 lines of a panel: line r holds depths 4 r .. 4 r + 3 of 16 columns, as
/// tdpbsud wants its unsigned operand. acc = sum q (w + 128), so 128 times the sum of q comes off
/// at the end.
class Int8GemmAmx final : public AmxMicrokernel {
 public:
  explicit Int8GemmAmx(const Int8GemmAmxConfig& config)
      : AmxMicrokernel(to_string(config), config,
                       {.k_step_log2 = 6, .panel_lines = 16, .round_up = true}),
        wide_(config.wide) {}

 private:
  void emit_dot(const Xbyak::Tmm& acc, const Xbyak::Tmm& a, const Xbyak::Tmm& b) override {
    tdpbsud(acc, a, b);
  }
  void emit_begin_to_f32() override;
  void emit_row_to_f32(const Vectors& to) override;
  void emit_next_row_to_f32() override;
  void emit_load_partial() override;
  void emit_store_partial() override;
  void emit_load_row(const Vectors& to);
  int wide_row_bytes() const { return 2 * row_bytes(); }

  bool wide_;
  Vectors col_scale_;
  Xbyak::Reg64 row_sum_, row_scale_, partial_;
};

// As in Int8GemmAvx512: each call counts from zero in s32 and the parts meet in s64.
void Int8GemmAmx::emit_load_partial() {
  if (!wide_) return AmxMicrokernel::emit_load_partial();
  emit_zero_tiles();
}

void Int8GemmAmx::emit_store_partial() {
  if (!wide_) return AmxMicrokernel::emit_store_partial();
  emit_stage();
  TakenGp partial(gp, "partial");
  mov(*partial, arg(offsetof(GemmArgs, acc)));
  const Vectors row = take_vectors("row.");
  emit_rows([&] {
    emit_load_row(row);
    for (int v = 0; v < shape().nr; ++v) {
      emit_store_wide(row[static_cast<size_t>(v)], *partial + v * 128);
    }
    add(*partial, wide_row_bytes());
  });
  give_back(row);
}

void Int8GemmAmx::emit_load_row(const Vectors& to) {
  for (int v = 0; v < shape().nr; ++v) vmovups(to[static_cast<size_t>(v)], ptr[row() + v * 64]);
}

void Int8GemmAmx::emit_begin_to_f32() {
  const auto load = [this](const char* name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  };
  row_sum_ = load("row_sum", offsetof(GemmArgs, row_sum));
  row_scale_ = load("row_scale", offsetof(GemmArgs, row_scale));
  col_scale_ = take_vectors("col_scale.");
  TakenGp col_scale(gp, "col_scale");
  mov(*col_scale, arg(offsetof(GemmArgs, col_scale)));
  for (int v = 0; v < shape().nr; ++v) {
    vmovups(col_scale_[static_cast<size_t>(v)], ptr[*col_scale + v * 64]);
  }
  if (wide_) partial_ = load("partial", offsetof(GemmArgs, acc));
}

void Int8GemmAmx::emit_row_to_f32(const Vectors& to) {
  emit_load_row(to);
  if (wide_) {
    for (int v = 0; v < shape().nr; ++v) {
      emit_correct_wide(to[static_cast<size_t>(v)], row_sum_, partial_ + v * 128);
    }
  } else {
    emit_correct_row(to, row_sum_);
  }
  emit_scale_row(to, row_scale_, col_scale_);
}

void Int8GemmAmx::emit_next_row_to_f32() {
  add(row_sum_, 4);
  add(row_scale_, 4);
  if (wide_) add(partial_, wide_row_bytes());
}

}  // namespace

std::string to_string(const Int8GemmAmxConfig& config) {
  GemmName name{kFamily, DType::kS8, DType::kU8, config, {}};
  if (config.wide) name.options.push_back(kWide);
  return to_string(name);
}

std::optional<Int8GemmAmxConfig> parse_int8_gemm_amx(std::string_view text) {
  const auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const Int8GemmAmxConfig config{name->config, name->has(kWide)};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const Int8GemmAmxConfig& config) {
  return invalid_tiles(config);
}

Result<GeneratedCode> generate(const Int8GemmAmxConfig& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Int8GemmAmx(config).generate();
}

}  // namespace quern::jit
