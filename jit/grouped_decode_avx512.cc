#include "jit/grouped_decode_avx512.h"

#include <cstddef>

#include "jit/code_emitter.h"
#include "jit/config_name.h"
#include "jit/gemm_config.h"

namespace quern::jit {
namespace {

constexpr std::string_view kFamily = "grouped_decode.avx512.";

/// for each panel { for each group { zero points; for each line { decode; store } } }
class GroupedDecodeAvx512 final : public CodeEmitter {
 public:
  explicit GroupedDecodeAvx512(const GroupedDecodeAvx512Config& config)
      : CodeEmitter(to_string(config), /*callee_saved=*/6, config.poison), config_(config) {}

 private:
  void emit() override;
  void emit_line();
  bool zeros() const { return config_.zeros == Int4Zeros::kInteger; }
  Xbyak::Address arg(size_t offset) { return qword[args() + offset]; }

  GroupedDecodeAvx512Config config_;
  Xbyak::Reg64 from_, to_, ahead_;
  Xbyak::Zmm zero_;
};

void GroupedDecodeAvx512::emit() {
  emit_prologue();
  section("load_args");
  const auto load = [this](const char* name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  };
  const Xbyak::Reg64 panel = load("panel", offsetof(GroupedDecodeArgs, b));
  const Xbyak::Reg64 to_panel = load("to.panel", offsetof(GroupedDecodeArgs, to));
  const Xbyak::Reg64 panels = load("panels_left", offsetof(GroupedDecodeArgs, panels));
  ahead_ = load("ahead", offsetof(GroupedDecodeArgs, ahead));
  const Xbyak::Reg64 zero_panel = gp.take("zero.panel");
  const Xbyak::Reg64 zero = gp.take("zero");
  if (zeros()) mov(zero_panel, arg(offsetof(GroupedDecodeArgs, zero)));
  from_ = gp.take("from");
  to_ = gp.take("to");
  section("setup");
  if (is_float8(config_.from)) {
    emit_float8_setup(config_.from, config_.vbmi);
  } else if (config_.to == DType::kBF16) {
    emit_lookup_setup(config_.zeros, config_.from);
  } else {
    emit_nibble_setup();
  }
  if (zeros()) zero_ = vec.take("z");
  if (config_.to == DType::kS8 && !zeros()) zero_ = broadcast_word("8", 0x08080808);

  section("panels");
  TakenGp groups(gp, "groups_left"), lines(gp, "lines_left");
  loop(panels, [&] {
    mov(from_, panel);
    mov(to_, to_panel);
    if (zeros()) mov(zero, zero_panel);
    mov(*groups, arg(offsetof(GroupedDecodeArgs, groups)));
    loop(*groups, [&] {
      if (zeros()) {
        emit_load_byte_zeros(zero_, ptr[zero]);
        add(zero, 16);
      }
      mov(*lines, arg(offsetof(GroupedDecodeArgs, group_lines)));
      loop(*lines, [&] { emit_line(); });
    });
    add(panel, arg(offsetof(GroupedDecodeArgs, panel_stride)));
    add(to_panel, arg(offsetof(GroupedDecodeArgs, to_stride)));
    if (zeros()) add(zero_panel, arg(offsetof(GroupedDecodeArgs, zero_stride)));
  });
  emit_return();
  emit_lookup_table();
  emit_float8_tables();
}

void GroupedDecodeAvx512::emit_line() {
  TakenVec line(vec, "line"), half(vec, "half");
  prefetcht0(ptr[from_ + ahead_]);
  if (is_float8(config_.from)) {
    emit_float8(*line, *half, ptr[from_]);
    vmovdqa64(ptr[to_], *line);
    vmovdqa64(ptr[to_ + 64], *half);
    add(to_, 128);
  } else if (config_.to != DType::kBF16) {
    for (int i = 0; i < 2; ++i) {
      emit_nibbles(*line, ptr[from_], i == 1);
      if (config_.to == DType::kS8) vpsubb(*line, *line, zero_);
      vmovdqa64(ptr[to_ + i * 64], *line);
    }
    add(to_, 128);
  } else {
    for (int pair = 0; pair < 4; ++pair) {
      emit_lookup(*line, ptr[from_], pair, &*half, &zero_);
      vmovdqa64(ptr[to_ + pair * 64], *line);
    }
    add(to_, 256);
  }
  add(from_, 64);
}

}  // namespace

std::string to_string(const GroupedDecodeAvx512Config& config) {
  std::string name(kFamily);
  name += to_string(config.from);
  name += to_string(config.to);
  if (config.from == DType::kU4 && config.to != DType::kU8) {
    name += '.';
    name += group_words({.zeros = config.zeros})[1];
  }
  if (!config.vbmi) name += ".novbmi";
  if (config.poison) name += ".poison";
  return name;
}

std::optional<GroupedDecodeAvx512Config> parse_grouped_decode_avx512(std::string_view name) {
  for (const DType from : {DType::kU4, DType::kE4M3, DType::kE5M2, DType::kE2M1}) {
    for (const DType to : {DType::kU8, DType::kS8, DType::kBF16}) {
      for (const Int4Zeros zeros : {Int4Zeros::kSymmetric, Int4Zeros::kInteger, Int4Zeros::kF32}) {
        for (const int flags : {0, 1, 2, 3}) {
          const GroupedDecodeAvx512Config config{to, zeros, (flags & 1) != 0, from,
                                                 (flags & 2) == 0};
          if (invalid(config) == nullptr && to_string(config) == name) return config;
        }
      }
    }
  }
  return std::nullopt;
}

const char* invalid(const GroupedDecodeAvx512Config& config) {
  if (config.to != DType::kU8 && config.to != DType::kS8 && config.to != DType::kBF16) {
    return "to must be u8, s8 or bf16";
  }
  if (config.to == DType::kU8 && config.zeros != Int4Zeros::kSymmetric) {
    return "u8 codes have no zero point subtracted: zeros must be at its default";
  }
  if (config.to == DType::kS8 && config.zeros == Int4Zeros::kF32) {
    return "q - z is s8 with integer zeros only";
  }
  if (!is_packed(config.from)) return "from must be u4, e4m3, e5m2 or e2m1";
  if (config.from != DType::kU4 &&
      (config.to != DType::kBF16 || config.zeros != Int4Zeros::kSymmetric)) {
    return "floating-point codes become bf16 and have no zero points";
  }
  if (!config.vbmi && !is_float8(config.from)) return "vbmi is for e4m3 and e5m2";
  return nullptr;
}

Result<GeneratedCode> generate(const GroupedDecodeAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return GroupedDecodeAvx512(config).generate();
}

}  // namespace quern::jit
