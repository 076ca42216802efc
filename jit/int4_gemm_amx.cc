#include "jit/int4_gemm_amx.h"

#include <cstddef>
#include <vector>

#include "jit/amx_microkernel.h"
#include "jit/config_name.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "int4_gemm.amx";

/// for each group of K:
///   tiles = 0; for each tile of the group { loads and dot products }; tiles to scratch
///   fold, row by row: sums = fma(f32(acc minus what the zero point takes away), scale, sums)
///
/// The folds of a group need vector registers and memory only, the dot products of the next one
/// tiles only: two places in scratch, used in turn, let the CPU do both at a time.
class Int4GemmAmx final : public AmxMicrokernel {
 public:
  explicit Int4GemmAmx(const Int4GemmAmxConfig& config)
      : AmxMicrokernel(to_string(config), config,
                       {.k_step_log2 = 0,
                        .panel_lines = config.tile_depth / 4,
                        .tile_bytes = config.tile_depth,
                        .round_up = true}),
        groups_(config.groups) {}

 private:
  static constexpr int kOtherPlace = 4 * kTileBytes;  ///< from the first to the second in scratch

  bool integer() const { return groups_.a == DType::kS8; }
  bool needs_sums() const { return !groups_.folds_nothing(); }
  bool needs_zeros() const { return needs_sums() && groups_.zeros != Int4Zeros::kSymmetric; }

  void emit_dot(const Xbyak::Tmm& acc, const Xbyak::Tmm& a, const Xbyak::Tmm& b) override {
    if (integer()) {
      tdpbsud(acc, a, b);
    } else {
      tdpbf16ps(acc, a, b);
    }
  }
  void emit_load_partial() override;
  void emit_store_partial() override {}  // the sums are where they belong
  void emit_k_loop() override;
  void emit_fold_group();
  void emit_panel_values(const Vectors& to, size_t base, size_t stride, int group_bytes_log2,
                         bool scales);
  void emit_stage() override;
  void emit_begin_to_f32() override;
  void emit_row_to_f32(const Vectors& to) override;
  void emit_next_row_to_f32() override;

  GroupConfig groups_;
  Xbyak::Reg64 group_, row_scale_;
};

void Int4GemmAmx::emit_load_partial() {
  Xbyak::Label done;
  cmp(arg(offsetof(GemmArgs, first)), 0);
  je(done, T_NEAR);
  {
    TakenGp sums(gp, "sums"), left(gp, "rows_left");
    TakenVec zero(vec, "0");
    vpxord(*zero, *zero, *zero);
    mov(*sums, arg(offsetof(GemmArgs, acc)));
    mov(*left, arg(offsetof(GemmArgs, m)));
    loop(*left, [&] {
      for (int v = 0; v < shape().nr; ++v) vmovups(ptr[*sums + v * 64], *zero);
      add(*sums, row_bytes());
    });
  }
  L(done);
}

void Int4GemmAmx::emit_k_loop() {
  section("groups");
  group_ = gp.take("group");
  xor_(group_, group_);
  emit_begin_fetching();
  Xbyak::Label next, done;
  cmp(arg(offsetof(GemmArgs, groups)), 0);
  je(done, T_NEAR);
  align(32);
  L(next);
  emit_zero_tiles();
  {
    TakenGp count(gp, "count");
    mov(*count, arg(offsetof(GemmArgs, group_steps)));
    emit_turns(*count);
  }
  emit_fold_group();
  inc(group_);
  cmp(group_, arg(offsetof(GemmArgs, groups)));
  jl(next, T_NEAR);
  L(done);
  emit_end_fetching();
  gp.give_back(group_);
}

// The group's scales or zero points of each panel.
void Int4GemmAmx::emit_panel_values(const Vectors& to, size_t base, size_t stride,
                                    int group_bytes_log2, bool scales) {
  TakenGp from(gp, "from");
  mov(*from, group_);
  shl(*from, group_bytes_log2);
  add(*from, arg(base));
  for (size_t v = 0; v < to.size(); ++v) {
    if (v > 0) add(*from, arg(stride));
    if (scales) {
      emit_load_scale(to[v], ptr[*from], groups_.scale);
    } else {
      emit_load_zero(to[v], ptr[*from], groups_);
    }
  }
}

void Int4GemmAmx::emit_fold_group() {
  const Vectors scale = take_vectors("scale.");
  const Vectors zero = take_vectors("zero.");
  const Vectors row = take_vectors("row.");
  TakenGp place(gp, "place");
  static_assert(kOtherPlace == 1 << 12);
  mov(*place, group_);
  and_(*place, 1);
  shl(*place, 12);
  add(*place, tiles());
  emit_save_tiles(*place);
  emit_panel_values(scale, offsetof(GemmArgs, scale), offsetof(GemmArgs, scale_stride),
                    groups_.scale == DType::kF32 ? 6 : 5, true);
  if (needs_zeros()) {
    emit_panel_values(zero, offsetof(GemmArgs, zero), offsetof(GemmArgs, zero_stride),
                      groups_.zeros == Int4Zeros::kF32 ? 6 : 4, false);
  }
  {
    TakenGp sums(gp, "sums"), left(gp, "rows_left"), group_sum(gp, "group_sum");
    mov(*left, arg(offsetof(GemmArgs, m)));
    mov(*sums, arg(offsetof(GemmArgs, acc)));
    if (needs_sums()) {
      mov(*group_sum, group_);
      imul(*group_sum, arg(offsetof(GemmArgs, group_sum_stride)));
      add(*group_sum, arg(offsetof(GemmArgs, group_sum)));
    }
    loop(*left, [&] {
      for (int v = 0; v < shape().nr; ++v) {
        const auto i = static_cast<size_t>(v);
        vmovups(row[i], ptr[*place + v * 64]);
        emit_fold(row[i], scale[i], zero[i], Xbyak::RegExp(*group_sum), *sums + v * 64, groups_);
      }
      add(*place, row_bytes());
      add(*sums, row_bytes());
      if (needs_sums()) add(*group_sum, 4);
    });
  }
  give_back(row);
  give_back(zero);
  give_back(scale);
}

void Int4GemmAmx::emit_stage() {
  TakenGp sums(gp, "sums");
  mov(*sums, arg(offsetof(GemmArgs, acc)));
  emit_walk(Xbyak::RegExp(*sums));
}

void Int4GemmAmx::emit_begin_to_f32() {
  if (!integer()) return;
  row_scale_ = gp.take("row_scale");
  mov(row_scale_, arg(offsetof(GemmArgs, row_scale)));
}

void Int4GemmAmx::emit_row_to_f32(const Vectors& to) {
  for (int v = 0; v < shape().nr; ++v) {
    const Xbyak::Zmm& t = to[static_cast<size_t>(v)];
    vmovups(t, ptr[row() + v * 64]);
    if (integer()) vmulps(t, t, ptr_b[row_scale_]);
  }
}

void Int4GemmAmx::emit_next_row_to_f32() {
  if (integer()) add(row_scale_, 4);
}

DType decoded(const Int4GemmAmxConfig& config) {
  return config.groups.a == DType::kS8 ? DType::kU8 : DType::kBF16;
}

}  // namespace

std::string to_string(const Int4GemmAmxConfig& config) {
  const std::string tile = "t" + std::to_string(config.tile_depth);
  GemmName name{kFamily, config.groups.a, decoded(config), config, {tile}};
  for (const std::string_view word : group_words(config.groups)) name.options.push_back(word);
  return to_string(name);
}

std::optional<Int4GemmAmxConfig> parse_int4_gemm_amx(std::string_view text) {
  auto name = parse_gemm_name(text);
  if (!name || name->options.empty()) return std::nullopt;
  const auto tile_depth = parse_field(name->options[0], "t");
  name->options.erase(name->options.begin());
  const auto groups = parse_group_words(name->a, name->options);
  if (!groups || !tile_depth) return std::nullopt;
  const Int4GemmAmxConfig config{name->config, *groups, *tile_depth};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const Int4GemmAmxConfig& config) {
  if (const char* rule = invalid_groups(config.groups)) return rule;
  if (config.tile_depth < 8 || config.tile_depth > 64 || config.tile_depth % 8 != 0) {
    return "tile_depth must be a multiple of 8 in 8..64";
  }
  if (config.prefetch > 2 || (config.prefetch != 0 && config.nr > 2)) {
    return "prefetch must be 0, or 1 or 2 with at most two panels: of packed weights that follow";
  }
  return invalid_tiles(config);
}

Result<GeneratedCode> generate(const Int4GemmAmxConfig& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Int4GemmAmx(config).generate();
}

}  // namespace quern::jit
