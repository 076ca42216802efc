#include "jit/isa.h"

#include <cpuid.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

namespace quern::jit {
namespace {

class SystemCpu final : public CpuSource {
 public:
  CpuidRegs cpuid(uint32_t leaf, uint32_t subleaf) const override {
    CpuidRegs r;
    __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
    return r;
  }

  // Inline assembly instead of _xgetbv: the intrinsic would need -mxsave for the whole file.
  uint64_t xgetbv(uint32_t index) const override {
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(index));
    return (static_cast<uint64_t>(high) << 32) | low;
  }

  ArchPrctlResult arch_prctl(int op, unsigned long arg) const override {
    ArchPrctlResult result;
    unsigned long stored = 0;
    const bool asks = op != kArchGetXcompPerm;
    const long rc = asks ? syscall(SYS_arch_prctl, op, arg) : syscall(SYS_arch_prctl, op, &stored);
    result.error = rc == 0 ? 0 : errno;
    result.value = stored;
    return result;
  }
};

constexpr bool bit(uint64_t word, int index) {
  return ((word >> index) & 1) != 0;
}

// Intel manual volume 1 section 13.3: components of XCR0.
constexpr uint64_t kXcr0Avx512 = 0xe6;  // SSE, AVX, opmask, upper halves, upper registers
constexpr uint64_t kXcr0Amx = 0x60000;  // tile configuration, tile data
constexpr uint32_t kLeafTiles = 0x1d;

template <typename... Values>
std::string format(const char* text, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, text, values...);
  return buffer;
}

/// CPUID with the limits that CPUID itself states: beyond them processors answer with the data of
/// some other leaf.
class Leaves {
 public:
  explicit Leaves(const CpuSource& source) : source_(source), max_basic_(source.cpuid(0, 0).eax) {
    const uint32_t extended = source.cpuid(0x80000000u, 0).eax;
    max_extended_ = extended >= 0x80000000u ? extended : 0;
    max_leaf7_ = has(7) ? source.cpuid(7, 0).eax : 0;
  }

  bool has(uint32_t leaf) const {
    return leaf <= (leaf >= 0x80000000u ? max_extended_ : max_basic_);
  }
  uint32_t max_basic() const { return max_basic_; }

  CpuidRegs get(uint32_t leaf, uint32_t subleaf = 0) const {
    if (!has(leaf) || (leaf == 7 && subleaf > max_leaf7_)) return {};
    return source_.cpuid(leaf, subleaf);
  }

 private:
  const CpuSource& source_;
  uint32_t max_basic_ = 0;
  uint32_t max_extended_ = 0;
  uint32_t max_leaf7_ = 0;
};

/// Feature bits as CPUID states them, before anybody asked whether the state is enabled.
struct CpuidBits {
  explicit CpuidBits(const Leaves& leaves)
      : leaf0(leaves.get(0)),
        leaf1(leaves.get(1)),
        leaf7(leaves.get(7)),
        leaf7_1(leaves.get(7, 1)) {}

  bool intel() const { return leaf0.ebx == 0x756e6547; }  // "Genu", little-endian

  bool amd() const { return leaf0.ebx == 0x68747541; }  // "Auth"
  uint32_t family() const {
    const uint32_t base = (leaf1.eax >> 8) & 15;
    return base == 15 ? base + ((leaf1.eax >> 20) & 255) : base;
  }

  bool osxsave() const { return bit(leaf1.ecx, 27); }
  bool avx512f() const { return bit(leaf7.ebx, 16); }
  bool avx512dq() const { return bit(leaf7.ebx, 17); }
  bool avx512bw() const { return bit(leaf7.ebx, 30); }
  bool avx512vl() const { return bit(leaf7.ebx, 31); }
  bool avx512core() const { return avx512f() && avx512dq() && avx512bw() && avx512vl(); }
  bool vbmi() const { return bit(leaf7.ecx, 1); }
  bool vbmi2() const { return bit(leaf7.ecx, 6); }
  bool vnni() const { return bit(leaf7.ecx, 11); }
  bool fp16() const { return bit(leaf7.edx, 23); }
  bool bf16() const { return bit(leaf7_1.eax, 5); }
  bool bmi2() const { return bit(leaf7.ebx, 8); }
  bool amx_bf16() const { return bit(leaf7.edx, 22); }
  bool amx_tile() const { return bit(leaf7.edx, 24); }
  bool amx_int8() const { return bit(leaf7.edx, 25); }
  bool amx_fp16() const { return bit(leaf7_1.eax, 21); }

  CpuidRegs leaf0, leaf1, leaf7, leaf7_1;
};

struct NamedBit {
  const char* name;
  bool present;
};

template <size_t N>
std::string missing_of(const NamedBit (&bits)[N]) {
  std::string list;
  for (const NamedBit& b : bits) {
    if (b.present) continue;
    if (!list.empty()) list += ", ";
    list += b.name;
  }
  return list;
}

IsaStage avx512_cpuid(const Leaves& leaves, const CpuidBits& cpu) {
  IsaStage stage{kStageAvx512Cpuid, false, ""};
  if (!leaves.has(7)) {
    stage.detail = format("leaf 7 is absent (highest leaf %u)", leaves.max_basic());
    return stage;
  }
  const std::string missing = missing_of({{"AVX512F", cpu.avx512f()},
                                          {"AVX512DQ", cpu.avx512dq()},
                                          {"AVX512BW", cpu.avx512bw()},
                                          {"AVX512VL", cpu.avx512vl()},
                                          {"AVX512_VNNI", cpu.vnni()}});
  stage.passed = missing.empty();
  stage.detail = missing.empty() ? "F, DQ, BW, VL and VNNI" : "missing: " + missing;
  return stage;
}

/// The bits of XCR0 as state; 0 where the operating system does not use XSAVE.
struct Xcr0 {
  Xcr0(const CpuSource& source, bool os_uses_xsave)
      : readable(os_uses_xsave), value(os_uses_xsave ? source.xgetbv(0) : 0) {}
  bool readable;
  uint64_t value;
};

IsaStage xcr0_stage(const char* name, const Xcr0& xcr0, uint64_t need, const char* what) {
  IsaStage stage{name, (xcr0.value & need) == need, ""};
  if (!xcr0.readable) {
    stage.detail =
        "OSXSAVE (leaf 1 ECX bit 27) is off: the operating system keeps no extended state";
  } else {
    stage.detail = format("XCR0 = 0x%llx: %s is %s", static_cast<unsigned long long>(xcr0.value),
                          what, stage.passed ? "on" : "off");
  }
  return stage;
}

/// Generators compute tile addresses for palette 1 as every processor with AMX has it. A leaf that
/// is masked (all zero) says nothing against it; a different geometry does.
std::string palette_objection(const Leaves& leaves) {
  const CpuidRegs r = leaves.get(kLeafTiles, 1);
  if ((r.eax | r.ebx | r.ecx) == 0) return "";
  const uint32_t tile_bytes = r.eax >> 16;
  const uint32_t row_bytes = r.ebx & 0xffffu;
  const uint32_t tiles = r.ebx >> 16;
  const uint32_t rows = r.ecx & 0xffffu;
  if (tile_bytes == 1024 && row_bytes == 64 && tiles == 8 && rows == 16) return "";
  return format("palette 1 has %u tiles of %u x %u bytes, not 8 of 16 x 64", tiles, rows,
                row_bytes);
}

IsaStage amx_cpuid(const Leaves& leaves, const CpuidBits& cpu) {
  IsaStage stage{kStageAmxCpuid, false, ""};
  if (!leaves.has(7)) {
    stage.detail = format("leaf 7 is absent (highest leaf %u)", leaves.max_basic());
    return stage;
  }
  const std::string missing = missing_of(
      {{"AMX-TILE", cpu.amx_tile()}, {"AMX-INT8", cpu.amx_int8()}, {"AMX-BF16", cpu.amx_bf16()}});
  if (!missing.empty()) {
    stage.detail = "missing: " + missing;
    return stage;
  }
  stage.detail = palette_objection(leaves);
  stage.passed = stage.detail.empty();
  if (stage.passed) stage.detail = "TILE, INT8 and BF16";
  return stage;
}

std::string errno_name(int error) {
  switch (error) {
    case EPERM:
      return "EPERM";
    case EINVAL:
      return "EINVAL";
    case ENOSYS:
      return "ENOSYS";
    case EOPNOTSUPP:
      return "EOPNOTSUPP";
    case ENOSPC:
      return "ENOSPC";
    case EACCES:
      return "EACCES";
    case ENOMEM:
      return "ENOMEM";
    case EFAULT:
      return "EFAULT";
    case EBUSY:
      return "EBUSY";
    case ENODEV:
      return "ENODEV";
    default:
      return format("errno %d", error);
  }
}

/// Get, request, get again: only the kernel's own word that tile data is permitted counts, neither
/// a request that returned 0 nor the absence of an error.
IsaStage amx_permission(const CpuSource& source) {
  IsaStage stage{kStageAmxPermission, false, ""};
  const auto granted = [](const ArchPrctlResult& r) {
    return r.error == 0 && bit(r.value, static_cast<int>(kXfeatureTileData));
  };
  if (granted(source.arch_prctl(kArchGetXcompPerm, 0))) {
    stage.passed = true;
    stage.detail = "XTILEDATA was permitted already";
    return stage;
  }
  const ArchPrctlResult request = source.arch_prctl(kArchReqXcompPerm, kXfeatureTileData);
  const ArchPrctlResult after = source.arch_prctl(kArchGetXcompPerm, 0);
  if (granted(after)) {
    stage.passed = true;
    stage.detail = "XTILEDATA permitted on request";
  } else if (request.error != 0) {
    stage.detail = "arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA): " + errno_name(request.error);
  } else if (after.error != 0) {
    stage.detail = "arch_prctl(ARCH_GET_XCOMP_PERM): " + errno_name(after.error);
  } else {
    stage.detail =
        format("the request succeeded, but the permitted set is 0x%llx without XTILEDATA",
               static_cast<unsigned long long>(after.value));
  }
  return stage;
}

std::string brand_of(const Leaves& leaves) {
  std::string brand;
  const auto append = [&brand](uint32_t word) {
    for (int i = 0; i < 4; ++i) brand += static_cast<char>((word >> (8 * i)) & 0xff);
  };
  if (leaves.has(0x80000004u)) {
    for (uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
      const CpuidRegs r = leaves.get(leaf);
      append(r.eax), append(r.ebx), append(r.ecx), append(r.edx);
    }
  } else {
    const CpuidRegs r = leaves.get(0);
    append(r.ebx), append(r.edx), append(r.ecx);
  }
  brand.resize(std::min(brand.find('\0'), brand.size()));
  // Hypervisors put anything here, and it ends up on terminals and in JSON.
  for (char& c : brand) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  const size_t first = brand.find_first_not_of(' ');
  if (first == std::string::npos) return "unknown";
  return brand.substr(first, brand.find_last_not_of(' ') - first + 1);
}

/// Leaves 4 and 0x8000001d share one format.
bool read_cache_leaf(const Leaves& leaves, uint32_t leaf, CacheSizes* out) {
  constexpr uint32_t kMost = 16;  // a broken hypervisor may never say "no more"
  bool any = false;
  for (uint32_t sub = 0; leaves.has(leaf) && sub < kMost; ++sub) {
    const CpuidRegs r = leaves.get(leaf, sub);
    const uint32_t type = r.eax & 0x1f;  // 0 none, 1 data, 2 instruction, 3 unified
    if (type == 0) break;
    if (type == 2) continue;
    const uint64_t line = (r.ebx & 0xfff) + 1;
    const uint64_t partitions = ((r.ebx >> 12) & 0x3ff) + 1;
    const uint64_t ways = (r.ebx >> 22) + 1;
    const uint64_t bytes = line * partitions * ways * (uint64_t{r.ecx} + 1);
    any = true;
    switch ((r.eax >> 5) & 7) {
      case 1:
        out->l1d_bytes = bytes;
        break;
      case 2:
        out->l2_bytes = bytes;
        break;
      case 3:
        out->l3_bytes = bytes;
        out->l3_shared_by = ((r.eax >> 14) & 0xfff) + 1;
        break;
      default:
        break;
    }
  }
  return any;
}

CacheSizes cache_sizes(const Leaves& leaves) {
  CacheSizes sizes;
  if (read_cache_leaf(leaves, 4, &sizes)) return sizes;
  if (read_cache_leaf(leaves, 0x8000001du, &sizes)) return sizes;
  sizes.l1d_bytes = size_t{leaves.get(0x80000005u).ecx >> 24} << 10;
  const CpuidRegs r = leaves.get(0x80000006u);
  sizes.l2_bytes = size_t{r.ecx >> 16} << 10;
  sizes.l3_bytes = size_t{r.edx >> 18} << 19;
  return sizes;
}

void set_avx512(const CpuidBits& cpu, bool state_on, IsaFeatures* f) {
  f->bmi2 = cpu.bmi2();
  f->avx512_core = state_on && cpu.avx512core();
  f->vnni = f->avx512_core && cpu.vnni();
  f->bf16 = f->avx512_core && cpu.bf16();
  f->slow_bf16_dots = f->bf16 && cpu.intel();
  f->half_width_vectors = f->avx512_core && cpu.amd() && cpu.family() == 0x19;
  f->far_prefetch = f->avx512_core && cpu.amd() && cpu.family() == 0x1a;
  f->vbmi = f->avx512_core && cpu.vbmi();
  f->vbmi2 = f->avx512_core && cpu.vbmi2();
  f->fp16 = f->avx512_core && cpu.fp16();
}

void set_amx(const CpuidBits& cpu, bool usable, IsaFeatures* f) {
  f->amx_tile = usable && cpu.amx_tile();
  f->amx_int8 = f->amx_tile && cpu.amx_int8();
  f->amx_bf16 = f->amx_tile && cpu.amx_bf16();
  f->amx_fp16 = f->amx_tile && cpu.amx_fp16();
}

// Not a static of the function, whose guard a forked child could find taken for ever.
constinit const SystemCpu kSystemCpu;
constinit std::atomic<const CpuSource*> g_process_cpu{&kSystemCpu};

}  // namespace

const CpuSource& process_cpu() {
  return *g_process_cpu.load(std::memory_order_acquire);
}

void set_process_cpu(const CpuSource* cpu) {
  g_process_cpu.store(cpu == nullptr ? &kSystemCpu : cpu, std::memory_order_release);
}

const CpuSource& system_cpu() {
  return kSystemCpu;
}

IsaFeatures detect(const CpuSource& source, IsaLevel max_level, IsaReport* report) {
  const Leaves leaves(source);
  const CpuidBits cpu(leaves);
  const Xcr0 xcr0(source, cpu.osxsave());
  IsaStage stages[] = {
      avx512_cpuid(leaves, cpu),
      xcr0_stage(kStageAvx512Xcr0, xcr0, kXcr0Avx512, "AVX-512 state (bits 1, 2, 5, 6, 7)"),
      amx_cpuid(leaves, cpu),
      xcr0_stage(kStageAmxXcr0, xcr0, kXcr0Amx, "tile state (bits 17, 18)"),
      {kStageAmxPermission, false, ""},
  };
  const bool avx512 = stages[0].passed && stages[1].passed;
  IsaStage& permission = stages[4];
  if (!avx512 || !stages[2].passed || !stages[3].passed) {
    permission.detail = "not asked for: an earlier stage failed";
  } else if (max_level < IsaLevel::kAmx) {
    permission.detail = "not asked for: the level is capped below amx";
  } else {
    permission = amx_permission(source);
  }

  IsaFeatures features;
  features.cache = cache_sizes(leaves);
  set_avx512(cpu, stages[1].passed, &features);
  set_amx(cpu, permission.passed, &features);
  const IsaLevel machine = permission.passed ? IsaLevel::kAmx
                           : avx512          ? IsaLevel::kAvx512
                                             : IsaLevel::kNone;
  features.level = std::min(machine, max_level);
  if (report != nullptr) {
    report->level = machine;
    report->cpu = brand_of(leaves);
    report->avx512_bf16 = features.bf16;
    report->avx512_vbmi = features.vbmi;
    report->avx512_fp16 = features.fp16;
    report->stages.assign(std::begin(stages), std::end(stages));
  }
  return features;
}

}  // namespace quern::jit
