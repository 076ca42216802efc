#include "model_smoke/options.h"

#include "model_smoke/input_error.h"

namespace quern::smoke {

void add_common_options(CLI::App& command, CommonOptions& o) {
  command.add_option("-m,--model", o.model, "Model directory (config.json, *.safetensors)")
      ->required();
  command.add_option("--threads", o.threads, "Threads (default: the CPUs this process may use)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--isa", o.isa, "Kernel level")
      ->check(CLI::IsMember({"auto", "amx", "avx512"}));
  command.add_flag("--emulate-amx", o.emulate_amx, "Run AMX kernels on an emulator");
  command.add_option("--backend", o.backend, "What multiplies: generated kernels or scalar ops")
      ->check(CLI::IsMember({"jit", "reference"}));
  command.add_option("--act", o.act, "Activations of the projections")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  command.add_option("--kv-cache", o.kv_cache, "Type of the key/value cache")
      ->check(CLI::IsMember({"auto", "bf16", "fp8"}));
  command.add_option("--json", o.json, "Write the results to this file too");
}

Backend CommonOptions::parsed_backend() const {
  return backend == "reference" ? Backend::kReference : Backend::kJit;
}

std::optional<ActMode> CommonOptions::parsed_act() const {
  if (act.empty()) return std::nullopt;
  if (act == "f32") return ActMode::kF32;
  return act == "bf16" ? ActMode::kBF16 : ActMode::kInt8;
}

std::optional<IsaLevel> CommonOptions::parsed_isa() const {
  if (isa == "auto") return std::nullopt;
  return isa == "amx" ? IsaLevel::kAmx : IsaLevel::kAvx512;
}

void CommonOptions::refuse_unavailable() const {
  if (emulate_amx) {
    throw InputError("--emulate-amx", "", "no emulation: the AMX emulator is not in this build yet",
                     "the switch");
  }
  if (kv_cache != "auto") {
    throw InputError("--kv-cache", "",
                     "auto (the type of the activations): a choice is not in this build yet",
                     kv_cache);
  }
}

}  // namespace quern::smoke
