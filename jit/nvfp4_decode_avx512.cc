#include "jit/nvfp4_decode_avx512.h"

#include <cstddef>

#include "jit/code_emitter.h"

namespace quern::jit {
namespace {

constexpr std::string_view kName = "nvfp4_decode.avx512.e2m1bf16";

/// for each panel { for each block { scales; for each of two lines { four pairs; store } } }
class Nvfp4DecodeAvx512 final : public CodeEmitter {
 public:
  explicit Nvfp4DecodeAvx512(const Nvfp4DecodeAvx512Config& config)
      : CodeEmitter(to_string(config), /*callee_saved=*/6, config.poison) {}

 private:
  void emit() override;
  void emit_block();
  Xbyak::Address arg(size_t offset) { return qword[args() + offset]; }

  Xbyak::Reg64 from_, scale_, to_, ahead_;
};

void Nvfp4DecodeAvx512::emit() {
  emit_prologue();
  section("load_args");
  const auto load = [this](const char* name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  };
  const Xbyak::Reg64 panel = load("panel", offsetof(Nvfp4DecodeArgs, b));
  const Xbyak::Reg64 scale_panel = load("scale.panel", offsetof(Nvfp4DecodeArgs, scale));
  const Xbyak::Reg64 to_panel = load("to.panel", offsetof(Nvfp4DecodeArgs, to));
  const Xbyak::Reg64 panels = load("panels_left", offsetof(Nvfp4DecodeArgs, panels));
  ahead_ = load("ahead", offsetof(Nvfp4DecodeArgs, ahead));
  from_ = gp.take("from");
  scale_ = gp.take("scale");
  to_ = gp.take("to");
  section("setup");
  emit_nvfp4_setup();

  section("panels");
  TakenGp blocks(gp, "blocks_left");
  loop(panels, [&] {
    mov(from_, panel);
    mov(scale_, scale_panel);
    mov(to_, to_panel);
    mov(*blocks, arg(offsetof(Nvfp4DecodeArgs, blocks)));
    loop(*blocks, [&] { emit_block(); });
    add(panel, arg(offsetof(Nvfp4DecodeArgs, panel_stride)));
    add(scale_panel, arg(offsetof(Nvfp4DecodeArgs, scale_stride)));
    add(to_panel, arg(offsetof(Nvfp4DecodeArgs, to_stride)));
  });
  emit_return();
  emit_nvfp4_tables();
}

void Nvfp4DecodeAvx512::emit_block() {
  TakenVec keep(vec, "keep"), below(vec, "below"), pair_of(vec, "pair");
  emit_block_scales(keep, below, ptr[scale_]);
  for (int line = 0; line < 2; ++line) {
    prefetcht0(ptr[from_ + ahead_ + line * 64]);
    for (int pair = 0; pair < 4; ++pair) {
      emit_nvfp4(pair_of, ptr[from_ + line * 64], pair, keep, below);
      vmovdqa64(ptr[to_ + (4 * line + pair) * 64], pair_of);
    }
  }
  add(from_, 128);
  add(scale_, 16);
  add(to_, 512);
}

}  // namespace

std::string to_string(const Nvfp4DecodeAvx512Config& config) {
  return std::string(kName) + (config.poison ? ".poison" : "");
}

std::optional<Nvfp4DecodeAvx512Config> parse_nvfp4_decode_avx512(std::string_view name) {
  for (const bool poison : {false, true}) {
    const Nvfp4DecodeAvx512Config config{poison};
    if (to_string(config) == name) return config;
  }
  return std::nullopt;
}

const char* invalid(const Nvfp4DecodeAvx512Config& /*config*/) {
  return nullptr;
}

Result<GeneratedCode> generate(const Nvfp4DecodeAvx512Config& config) {
  return Nvfp4DecodeAvx512(config).generate();
}

}  // namespace quern::jit
