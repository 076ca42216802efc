#include "jit/int8_gemm_avx512.h"

#include <cstddef>
#include <vector>

#include "jit/gemm_microkernel.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "int8_gemm.avx512";
constexpr std::string_view kWide = "wide";

/// zmm lane c of panel v holds four consecutive depths of column 16 v + c; a broadcast of four
/// bytes of a row of A meets them in vpdpbusd, whose first source is unsigned (the codes) and whose
/// second is signed (the activations). acc = sum q (w + 128), so 128 times the sum of q comes off
/// at the end.
///
/// Small blocks have too few accumulators to hide the latency of a dot product (5 cycles at two a
/// cycle), so that the steps of a turn add into several sets of them in turn. Integer sums are
/// exact in any order.
class Int8GemmAvx512 final : public GemmMicrokernel {
 public:
  explicit Int8GemmAvx512(const Int8GemmAvx512Config& config)
      : GemmMicrokernel(to_string(config), config,
                        {.k_step_log2 = 2, .a_bytes = 4, .round_up = true}),
        wide_(config.wide),
        sets_(config.mr * config.nr >= kEnoughAccumulators       ? 1
              : config.mr * config.nr * 2 >= kEnoughAccumulators ? 2
                                                                 : 4) {}

 private:
  static constexpr int kEnoughAccumulators = 10;

  void emit_setup() override;
  void emit_teardown() override;
  void emit_step(int a_offset, int b_offset) override;
  void emit_to_f32() override;
  void emit_load_partial() override;
  void emit_store_partial() override;
  void emit_wide_row_to_f32(int m, const Xbyak::Reg64& row_sum);
  int wide_offset(int m, int v) const { return 2 * partial_offset(m, v); }

  Xbyak::Zmm acc_of(int set, int m, int v) const {
    return set == 0 ? acc(m, v)
                    : extra_[static_cast<size_t>(((set - 1) * shape().mr + m) * shape().nr + v)];
  }

  bool wide_;
  int sets_;
  Vectors extra_;
};

void Int8GemmAvx512::emit_setup() {
  for (int i = 0; i < (sets_ - 1) * shape().mr * shape().nr; ++i) {
    extra_.push_back(vec.take("acc.set" + std::to_string(i)));
    vpxord(extra_.back(), extra_.back(), extra_.back());
  }
}

void Int8GemmAvx512::emit_teardown() {
  for (int set = 1; set < sets_; ++set) {
    for (int m = 0; m < shape().mr; ++m) {
      for (int v = 0; v < shape().nr; ++v) vpaddd(acc(m, v), acc(m, v), acc_of(set, m, v));
    }
  }
  give_back(extra_);
}

void Int8GemmAvx512::emit_step(int a_offset, int b_offset) {
  const Vectors b = take_vectors("b.");
  for (int v = 0; v < shape().nr; ++v) {
    vmovups(b[static_cast<size_t>(v)], ptr[panel(v) + b_offset]);
  }
  const int set = b_offset / 64 % sets_;
  const Vectors broadcasts = take_broadcasts();
  for (int m = 0; m < shape().mr; ++m) {
    const Xbyak::Zmm& a = broadcasts[static_cast<size_t>(m) % broadcasts.size()];
    vpbroadcastd(a, ptr[row(m) + a_offset]);
    for (int v = 0; v < shape().nr; ++v) {
      vpdpbusd(acc_of(set, m, v), b[static_cast<size_t>(v)], a);
    }
  }
  give_back(broadcasts);
  give_back(b);
}

void Int8GemmAvx512::emit_load_partial() {
  if (!wide_) return GemmMicrokernel::emit_load_partial();
  // Each call counts from zero in s32 (65,536 products of u8 and s8 cannot overflow it) and the
  // parts meet in s64.
  section("zero");
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) vpxord(acc(m, v), acc(m, v), acc(m, v));
  }
}

void Int8GemmAvx512::emit_store_partial() {
  if (!wide_) return GemmMicrokernel::emit_store_partial();
  section("store_partial");
  TakenGp partial(gp, "partial");
  mov(*partial, arg(offsetof(GemmArgs, acc)));
  for (int m = 0; m < shape().mr; ++m) {
    for (int v = 0; v < shape().nr; ++v) {
      emit_store_wide(acc(m, v), *partial + wide_offset(m, v));
    }
  }
}

void Int8GemmAvx512::emit_to_f32() {
  section("to_f32");
  TakenGp pointer(gp, "row_sum");
  mov(*pointer, arg(offsetof(GemmArgs, row_sum)));
  for (int m = 0; m < shape().mr; ++m) {
    if (wide_) {
      emit_wide_row_to_f32(m, *pointer);
    } else {
      emit_correct_row(acc_row(m), *pointer + m * 4);
    }
  }
  TakenGp col_scale(gp, "col_scale");
  mov(*pointer, arg(offsetof(GemmArgs, row_scale)));
  mov(*col_scale, arg(offsetof(GemmArgs, col_scale)));
  for (int m = 0; m < shape().mr; ++m) emit_scale_row(acc_row(m), *pointer + m * 4, *col_scale);
}

void Int8GemmAvx512::emit_wide_row_to_f32(int m, const Xbyak::Reg64& row_sum) {
  TakenGp partial(gp, "partial");
  mov(*partial, arg(offsetof(GemmArgs, acc)));
  for (int v = 0; v < shape().nr; ++v) {
    emit_correct_wide(acc(m, v), row_sum + m * 4, *partial + wide_offset(m, v));
  }
}

}  // namespace

std::string to_string(const Int8GemmAvx512Config& config) {
  GemmName name{kFamily, DType::kS8, DType::kU8, config, {}};
  if (config.wide) name.options.push_back(kWide);
  return to_string(name);
}

std::optional<Int8GemmAvx512Config> parse_int8_gemm_avx512(std::string_view text) {
  const auto name = parse_gemm_name(text);
  if (!name) return std::nullopt;
  const Int8GemmAvx512Config config{name->config, name->has(kWide)};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const Int8GemmAvx512Config& config) {
  return invalid_shape(config, config.nr + 1);
}

Result<GeneratedCode> generate(const Int8GemmAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Int8GemmAvx512(config).generate();
}

}  // namespace quern::jit
