#include "jit/grouped_gemm_amx.h"

#include <cstddef>
#include <vector>

#include "jit/amx_microkernel.h"
#include "jit/config_name.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "grouped_gemm.amx";

/// for each group of K:
///   tiles = 0; for each tile of the group { loads and dot products }
///   fold the group before, row by row: sums = fma(f32(its sums), scale, sums)
///   tiles to scratch
///
/// The fold of a group needs vector registers and memory only, the dot products of the next one
/// tiles only. In this order, with two places in scratch used in turn, the CPU does both at a time,
/// and what is read from scratch was stored long enough ago.
class GroupedGemmAmx final : public AmxMicrokernel {
 public:
  explicit GroupedGemmAmx(const GroupedGemmAmxConfig& config)
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
    if (integer() && groups_.subtracted) {
      tdpbssd(acc, a, b);
    } else if (integer()) {
      tdpbsud(acc, a, b);
    } else {
      tdpbf16ps(acc, a, b);
    }
  }
  void emit_load_partial() override;
  void emit_store_partial() override {}  // the sums are where they belong
  void emit_k_loop() override;
  void emit_fold_group();
  void emit_place(const Xbyak::Reg64& to, const Xbyak::Reg64& number);
  void emit_panel_values(const Vectors& to, size_t base, size_t stride, int group_bytes_log2,
                         bool scales);
  void emit_stage() override;
  void emit_begin_to_f32() override;
  void emit_row_to_f32(const Vectors& to) override;
  void emit_next_row_to_f32() override;

  GroupConfig groups_;
  Xbyak::Reg64 group_, row_scale_;
};

void GroupedGemmAmx::emit_load_partial() {
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

void GroupedGemmAmx::emit_k_loop() {
  section("groups");
  group_ = gp.take("group");
  xor_(group_, group_);
  emit_begin_fetching();
  Xbyak::Label next, fold, save, done;
  align(32);
  L(next);
  cmp(group_, arg(offsetof(GemmArgs, groups)));
  je(fold, T_NEAR);
  emit_zero_tiles();
  {
    TakenGp count(gp, "count");
    mov(*count, arg(offsetof(GemmArgs, group_steps)));
    emit_turns(*count);
  }
  L(fold);
  test(group_, group_);
  jz(save, T_NEAR);
  emit_fold_group();
  L(save);
  cmp(group_, arg(offsetof(GemmArgs, groups)));
  je(done, T_NEAR);
  {
    TakenGp place(gp, "place");
    emit_place(*place, group_);
    emit_save_tiles(*place);
  }
  inc(group_);
  jmp(next, T_NEAR);
  L(done);
  emit_end_fetching();
  gp.give_back(group_);
}

// Where the tiles of a group go: `number` modulo 2 decides.
void GroupedGemmAmx::emit_place(const Xbyak::Reg64& to, const Xbyak::Reg64& number) {
  static_assert(kOtherPlace == 1 << 12);
  if (to.getIdx() != number.getIdx()) mov(to, number);
  and_(to, 1);
  shl(to, 12);
  add(to, tiles());
}

// Scales or zero points of each panel, of the group before this one.
void GroupedGemmAmx::emit_panel_values(const Vectors& to, size_t base, size_t stride,
                                       int group_bytes_log2, bool scales) {
  TakenGp from(gp, "from");
  lea(*from, ptr[group_ - 1]);
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

// Of the group before this one.
void GroupedGemmAmx::emit_fold_group() {
  const Vectors scale = take_vectors("scale.");
  const Vectors zero = take_vectors("zero.");
  const Vectors row = take_vectors("row.");
  TakenGp place(gp, "place");
  lea(*place, ptr[group_ - 1]);
  emit_place(*place, *place);
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
      lea(*group_sum, ptr[group_ - 1]);
      imul(*group_sum, arg(offsetof(GemmArgs, group_sum_stride)));
      add(*group_sum, arg(offsetof(GemmArgs, group_sum)));
    }
    const auto rows = [&](const Xbyak::Reg64& count, int unroll) {
      loop(count, [&] {
        for (int r = 0; r < unroll; ++r) {
          for (int v = 0; v < shape().nr; ++v) {
            const auto i = static_cast<size_t>(v);
            const int at = r * row_bytes() + v * 64;
            vmovups(row[i], ptr[*place + at]);
            emit_fold(row[i], scale[i], zero[i], *group_sum + r * 4, *sums + at, groups_);
          }
        }
        add(*place, unroll * row_bytes());
        add(*sums, unroll * row_bytes());
        if (needs_sums()) add(*group_sum, unroll * 4);
      });
    };
    Xbyak::Label few, folded;
    shr(*left, 2);
    jz(few, T_NEAR);
    rows(*left, 4);
    L(few);
    mov(*left, arg(offsetof(GemmArgs, m)));
    and_(*left, 3);
    jz(folded, T_NEAR);
    rows(*left, 1);
    L(folded);
  }
  give_back(row);
  give_back(zero);
  give_back(scale);
}

void GroupedGemmAmx::emit_stage() {
  TakenGp sums(gp, "sums");
  mov(*sums, arg(offsetof(GemmArgs, acc)));
  emit_walk(Xbyak::RegExp(*sums));
}

void GroupedGemmAmx::emit_begin_to_f32() {
  if (!integer()) return;
  row_scale_ = gp.take("row_scale");
  mov(row_scale_, arg(offsetof(GemmArgs, row_scale)));
}

void GroupedGemmAmx::emit_row_to_f32(const Vectors& to) {
  for (int v = 0; v < shape().nr; ++v) {
    const Xbyak::Zmm& t = to[static_cast<size_t>(v)];
    vmovups(t, ptr[row() + v * 64]);
    if (integer()) vmulps(t, t, ptr_b[row_scale_]);
  }
}

void GroupedGemmAmx::emit_next_row_to_f32() {
  if (integer()) add(row_scale_, 4);
}

DType decoded(const GroupedGemmAmxConfig& config) {
  if (config.groups.a != DType::kS8) return DType::kBF16;
  return config.groups.subtracted ? DType::kS8 : DType::kU8;
}

}  // namespace

std::string to_string(const GroupedGemmAmxConfig& config) {
  const std::string tile = "t" + std::to_string(config.tile_depth);
  GemmName name{kFamily, config.groups.a, decoded(config), config, {tile}};
  for (const std::string_view word : group_words(config.groups)) name.options.push_back(word);
  return to_string(name);
}

std::optional<GroupedGemmAmxConfig> parse_grouped_gemm_amx(std::string_view text) {
  auto name = parse_gemm_name(text);
  if (!name || name->options.empty()) return std::nullopt;
  const auto tile_depth = parse_field(name->options[0], "t");
  name->options.erase(name->options.begin());
  auto groups = parse_group_words(name->a, name->options);
  if (!groups || !tile_depth) return std::nullopt;
  groups->subtracted = name->b == DType::kS8;
  const GroupedGemmAmxConfig config{name->config, *groups, *tile_depth};
  if (to_string(config) != text) return std::nullopt;
  return config;
}

const char* invalid(const GroupedGemmAmxConfig& config) {
  if (const char* rule = invalid_groups(config.groups)) return rule;
  if (config.groups.subtracted && config.groups.a != DType::kS8) {
    return "subtracted is for s8 rows: with bf16 rows it is always so";
  }
  if (config.tile_depth < 8 || config.tile_depth > 64 || config.tile_depth % 8 != 0) {
    return "tile_depth must be a multiple of 8 in 8..64";
  }
  if (config.prefetch > 2 || (config.prefetch != 0 && config.nr > 2)) {
    return "prefetch must be 0, or 1 or 2 with at most two panels: of packed weights that follow";
  }
  return invalid_tiles(config);
}

Result<GeneratedCode> generate(const GroupedGemmAmxConfig& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return GroupedGemmAmx(config).generate();
}

}  // namespace quern::jit
