// quern-amx-selftest [--time]: does AMX here do what quern's kernels expect? Static, reads no file.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "bench/amx_selftest.h"
#include "quern/version.h"
#include "tests/support/emulate_amx.h"

namespace quern::bench {

void Checksum::add(const void* bytes, size_t count) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) value_ = (value_ ^ p[i]) * 1099511628211ull;
}

namespace {

/// Prints a line a case and counts verdicts.
class Report {
 public:
  void operator()(const SelftestResult& r) {
    ++count_[static_cast<int>(r.verdict)];
    std::printf("%-44s %016llx  %s\n", r.name.c_str(), static_cast<unsigned long long>(r.checksum),
                text(r.verdict));
  }
  int of(Verdict verdict) const { return count_[static_cast<int>(verdict)]; }

 private:
  static const char* text(Verdict verdict) {
    switch (verdict) {
      case Verdict::kOk:
        return "ok";
      case Verdict::kWrong:
        return "WRONG";
      case Verdict::kDiffers:
        return "rounds otherwise than the manual";
      case Verdict::kNotRun:
        break;
    }
    return "not run";
  }
  int count_[4] = {};
};

Context at_level(IsaLevel level) {
  ContextOptions options;
  options.max_isa = level;
  const auto made = Context::create(options);
  return made.ok() ? *made : Context();
}

int run(bool time) {
  const amx_emu::Emulation emulation = amx_emu::emulate_amx_in_this_process();
  if (!emulation.refused.empty()) {
    std::fprintf(stderr, "quern-amx-selftest: no AMX and no emulation: %s\n",
                 emulation.refused.c_str());
    return 1;
  }
  const Context amx = at_level(IsaLevel::kAmx), avx512 = at_level(IsaLevel::kAvx512);
  std::printf("quern-amx-selftest %s\ncpu: %s\nAMX: %s\n", QUERN_VERSION,
              amx.isa_report().cpu.c_str(), emulation.native ? "native" : "emulated");
  for (const IsaStage& stage : amx.isa_report().stages) {
    std::printf("%s: %s%s\n", stage.name.c_str(),
                stage.passed ? "yes" : "no: ", stage.passed ? "" : stage.detail.c_str());
  }
  Report report;
  // On the CPU's own tiles the system must have allowed them first, which the context has asked
  // for.
  if (!emulation.native || amx.isa() == IsaLevel::kAmx) {
    run_instruction_cases(std::ref(report));
  }
  if (amx.isa() == IsaLevel::kAmx) {
    run_kernel_cases(amx, avx512, std::ref(report));
  } else {
    std::printf("kernels: not run: the level here is %s\n", to_string(amx.isa()));
  }
  std::printf("%d ok, %d wrong, %d round otherwise than the manual\n", report.of(Verdict::kOk),
              report.of(Verdict::kWrong), report.of(Verdict::kDiffers));
  if (time && !emulation.native) {
    std::printf("--time: not run: an emulator's time says nothing\n");
  } else if (time && amx.isa() == IsaLevel::kAmx) {
    print_times(amx, avx512);
  }
  const bool refused = emulation.native && amx.isa() != IsaLevel::kAmx;
  return report.of(Verdict::kWrong) == 0 && !refused ? 0 : 1;
}

}  // namespace
}  // namespace quern::bench

int main(int argc, char** argv) {
  bool time = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--time") == 0) {
      time = true;
      continue;
    }
    const bool help = std::strcmp(argv[i], "--help") == 0;
    std::fprintf(help ? stdout : stderr,
                 "usage: quern-amx-selftest [--time]\n"
                 "One line a case: name, checksum, verdict. --time: medians, on a CPU with AMX.\n"
                 "Exit 0: nothing is wrong. 1: something is, or no AMX can be had.\n");
    return help ? 0 : 2;
  }
  return quern::bench::run(time);
}
