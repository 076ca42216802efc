// Detection against mocked machines: expected levels and failed stages are written down by hand
// from the manuals, one row for each way in which a machine has been seen (or is able) to lack
// something.
#include "jit/isa.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/jit/fake_cpu.h"

namespace quern::jit {
namespace {

// Bit numbers of leaf 7, from the Intel manual (volume 2A, CPUID).
constexpr uint32_t kEbxBmi2 = 1u << 8, kEbxF = 1u << 16, kEbxDq = 1u << 17, kEbxBw = 1u << 30,
                   kEbxVl = 1u << 31;
constexpr uint32_t kEcxVbmi = 1u << 1, kEcxVbmi2 = 1u << 6, kEcxVnni = 1u << 11;
constexpr uint32_t kEdxAmxBf16 = 1u << 22, kEdxFp16 = 1u << 23, kEdxAmxTile = 1u << 24,
                   kEdxAmxInt8 = 1u << 25;
constexpr uint32_t kEaxBf16 = 1u << 5, kEaxAmxFp16 = 1u << 21;
constexpr uint32_t kOsxsave = 1u << 27;
constexpr uint64_t kXcr0All = 0x602e7;  // x87, SSE, AVX, opmask, zmm, pkru, tiles
constexpr uint64_t kXcr0Avx512Only = 0xe7;

void set_vendor(FakeCpu* cpu, const char (&vendor)[13]) {
  const auto word = [&](int at) {
    uint32_t w = 0;
    for (int i = 3; i >= 0; --i) w = w << 8 | static_cast<uint8_t>(vendor[at + i]);
    return w;
  };
  cpu->set(0, 0, {0, word(0), word(8), word(4)});
}

void set_brand(FakeCpu* cpu, std::string brand) {
  brand.resize(48);
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    uint32_t w[4];
    std::memcpy(w, brand.data() + 16 * leaf, 16);
    cpu->set(0x80000002u + leaf, 0, {w[0], w[1], w[2], w[3]});
  }
}

/// Sapphire Rapids under Linux that grants AMX on request.
FakeCpu sapphire_rapids() {
  FakeCpu cpu;
  cpu.max_basic = 0x20;
  cpu.max_extended = 0x80000008u;
  cpu.max_leaf7 = 2;
  set_vendor(&cpu, "GenuineIntel");
  set_brand(&cpu, "Intel(R) Xeon(R) Platinum 8480+");
  cpu.set(1, 0, {0x000806f8, 0, kOsxsave | (1u << 26), 0});
  cpu.set(7, 0,
          {0, kEbxBmi2 | kEbxF | kEbxDq | kEbxBw | kEbxVl, kEcxVbmi | kEcxVbmi2 | kEcxVnni,
           kEdxAmxBf16 | kEdxFp16 | kEdxAmxTile | kEdxAmxInt8});
  cpu.set(7, 1, {kEaxBf16, 0, 0, 0});
  cpu.set(0x1d, 0, {1, 0, 0, 0});
  cpu.set(0x1d, 1, {1024u << 16 | 8192, 8u << 16 | 64, 16, 0});
  cpu.xcr0 = kXcr0All;
  return cpu;
}

/// Zen 5: all of AVX-512 but FP16, no AMX.
FakeCpu zen5() {
  FakeCpu cpu = sapphire_rapids();
  set_vendor(&cpu, "AuthenticAMD");
  set_brand(&cpu, "AMD EPYC 9755 128-Core Processor");
  cpu.at(1).eax = 0x00b00f21;
  cpu.at(7).edx = 0;
  cpu.max_basic = 0x10;
  cpu.xcr0 = kXcr0Avx512Only;
  return cpu;
}

struct Profile {
  const char* name;
  FakeCpu cpu;
  IsaLevel level;
  const char* failed_stage;  ///< first stage that failed; "" where all passed
  const char* detail;        ///< part of that stage's text
};

void PrintTo(const Profile& profile, std::ostream* os) {
  *os << profile.name;
}

template <typename Change>
FakeCpu with(FakeCpu cpu, Change change) {
  change(cpu);
  return cpu;
}
template <typename Change>
FakeCpu spr(Change change) {
  return with(sapphire_rapids(), change);
}

std::vector<Profile> avx512_profiles() {
  constexpr IsaLevel kNone = IsaLevel::kNone, kAvx512 = IsaLevel::kAvx512;
  const char* const cpuid = kStageAvx512Cpuid;
  const char* const xcr0 = kStageAvx512Xcr0;
  return {
      {"zen5", zen5(), kAvx512, kStageAmxCpuid, "missing: AMX-TILE, AMX-INT8, AMX-BF16"},
      {"zen_without_bf16_instructions", with(zen5(), [](FakeCpu& c) { c.at(7, 1).eax = 0; }),
       kAvx512, kStageAmxCpuid, "missing"},
      {"cascade_lake", spr([](FakeCpu& c) {
         c.at(7).edx = 0, c.at(7).ecx = kEcxVnni, c.max_leaf7 = 0, c.xcr0 = kXcr0Avx512Only;
       }),
       kAvx512, kStageAmxCpuid, "missing"},
      {"skylake_server_no_vnni",
       spr([](FakeCpu& c) { c.at(7).edx = 0, c.at(7).ecx = 0, c.xcr0 = kXcr0Avx512Only; }), kNone,
       cpuid, "missing: AVX512_VNNI"},
      {"knights_landing_f_only", spr([](FakeCpu& c) {
         c.at(7) = {0, kEbxF, 0, 0};
       }),
       kNone, cpuid, "missing: AVX512DQ, AVX512BW, AVX512VL, AVX512_VNNI"},
      {"no_avx512dq", spr([](FakeCpu& c) { c.at(7).ebx &= ~kEbxDq; }), kNone, cpuid,
       "missing: AVX512DQ"},
      {"no_avx512bw", spr([](FakeCpu& c) { c.at(7).ebx &= ~kEbxBw; }), kNone, cpuid,
       "missing: AVX512BW"},
      {"no_avx512vl", spr([](FakeCpu& c) { c.at(7).ebx &= ~kEbxVl; }), kNone, cpuid,
       "missing: AVX512VL"},
      {"xen_hides_avx512_on_a_sapphire_rapids_model",
       spr([](FakeCpu& c) { c.at(7).ebx = kEbxBmi2, c.at(7).ecx = 0; }), kNone, cpuid,
       "missing: AVX512F, AVX512DQ, AVX512BW, AVX512VL, AVX512_VNNI"},
      {"haswell_avx2_only", spr([](FakeCpu& c) {
         c.at(7) = {0, kEbxBmi2, 0, 0}, c.xcr0 = 0x7, c.max_basic = 0xd;
       }),
       kNone, cpuid, "missing: AVX512F"},
      {"hybrid_client_avx_vnni_without_avx512", spr([](FakeCpu& c) {
         c.at(7) = {0, kEbxBmi2, 0, 0}, c.at(7, 1).eax = 1u << 4, c.xcr0 = 0x207;
       }),
       kNone, cpuid, "missing: AVX512F"},
      {"xcr0_without_avx512", spr([](FakeCpu& c) { c.xcr0 = 0x7; }), kNone, xcr0,
       "XCR0 = 0x7: AVX-512 state (bits 1, 2, 5, 6, 7) is off"},
      {"xcr0_without_opmask", spr([](FakeCpu& c) { c.xcr0 = kXcr0All & ~0x20u; }), kNone, xcr0,
       "XCR0 = 0x602c7"},
      {"xcr0_without_upper_registers", spr([](FakeCpu& c) { c.xcr0 = kXcr0All & ~0x80u; }), kNone,
       xcr0, "XCR0 = 0x60267"},
      {"xcr0_without_avx", spr([](FakeCpu& c) { c.xcr0 = kXcr0All & ~0x4u; }), kNone, xcr0,
       "XCR0 = 0x602e3"},
      {"osxsave_off", spr([](FakeCpu& c) { c.at(1).ecx &= ~kOsxsave; }), kNone, xcr0, "OSXSAVE"},
      {"leaf_7_absent", spr([](FakeCpu& c) { c.max_basic = 6; }), kNone, cpuid,
       "leaf 7 is absent (highest leaf 6)"},
      {"only_leaf_0", spr([](FakeCpu& c) { c.max_basic = 0; }), kNone, cpuid,
       "leaf 7 is absent (highest leaf 0)"},
      {"all_zero", FakeCpu(), kNone, cpuid, "leaf 7 is absent (highest leaf 0)"},
  };
}

std::vector<Profile> amx_profiles() {
  constexpr IsaLevel kNone = IsaLevel::kNone, kAvx512 = IsaLevel::kAvx512, kAmx = IsaLevel::kAmx;
  const char* const cpuid = kStageAmxCpuid;
  const char* const xcr0 = kStageAmxXcr0;
  const char* const permission = kStageAmxPermission;
  const auto refused = [](int error) {
    return spr([error](FakeCpu& c) { c.request_error = error; });
  };
  return {
      {"sapphire_rapids", sapphire_rapids(), kAmx, "", ""},
      {"granite_rapids_amx_fp16", spr([](FakeCpu& c) { c.at(7, 1).eax |= kEaxAmxFp16; }), kAmx, "",
       ""},
      {"unknown_vendor_with_everything",
       spr([](FakeCpu& c) { set_vendor(&c, "NobodyKnows!"), c.at(1).eax = 0; }), kAmx, "", ""},
      {"amx_machine_of_another_vendor", spr([](FakeCpu& c) { set_vendor(&c, "AuthenticAMD"); }),
       kAmx, "", ""},
      {"permitted_before", spr([](FakeCpu& c) { c.permitted = 0x602e7, c.request_error = EPERM; }),
       kAmx, "", ""},
      {"palette_leaf_masked", spr([](FakeCpu& c) { c.max_basic = 0x14; }), kAmx, "", ""},
      {"palette_of_other_geometry", spr([](FakeCpu& c) { c.at(0x1d, 1).ecx = 32; }), kAvx512, cpuid,
       "palette 1 has 8 tiles of 32 x 64 bytes"},
      {"tile_without_bf16", spr([](FakeCpu& c) { c.at(7).edx &= ~kEdxAmxBf16; }), kAvx512, cpuid,
       "missing: AMX-BF16"},
      {"tile_and_bf16_without_int8", spr([](FakeCpu& c) { c.at(7).edx &= ~kEdxAmxInt8; }), kAvx512,
       cpuid, "missing: AMX-INT8"},
      {"int8_and_bf16_without_tile", spr([](FakeCpu& c) { c.at(7).edx &= ~kEdxAmxTile; }), kAvx512,
       cpuid, "missing: AMX-TILE"},
      {"tile_alone", spr([](FakeCpu& c) { c.at(7).edx &= ~(kEdxAmxInt8 | kEdxAmxBf16); }), kAvx512,
       cpuid, "missing: AMX-INT8, AMX-BF16"},
      {"xcr0_without_tiles", spr([](FakeCpu& c) { c.xcr0 = kXcr0Avx512Only; }), kAvx512, xcr0,
       "XCR0 = 0xe7: tile state (bits 17, 18) is off"},
      {"xcr0_without_tile_data", spr([](FakeCpu& c) { c.xcr0 = 0x202e7; }), kAvx512, xcr0,
       "XCR0 = 0x202e7"},
      {"xcr0_without_tile_config", spr([](FakeCpu& c) { c.xcr0 = 0x402e7; }), kAvx512, xcr0,
       "XCR0 = 0x402e7"},
      {"request_eperm", refused(EPERM), kAvx512, permission,
       "ARCH_REQ_XCOMP_PERM, XTILEDATA): EPERM"},
      {"request_einval", refused(EINVAL), kAvx512, permission, "EINVAL"},
      {"request_enosys", refused(ENOSYS), kAvx512, permission, "ENOSYS"},
      {"request_eopnotsupp_gramine", refused(EOPNOTSUPP), kAvx512, permission, "EOPNOTSUPP"},
      {"request_enospc_small_signal_stack", refused(ENOSPC), kAvx512, permission, "ENOSPC"},
      {"request_unnamed_errno", refused(12345), kAvx512, permission, "errno 12345"},
      {"get_fails", spr([](FakeCpu& c) { c.get_error = EINVAL; }), kAvx512, permission,
       "ARCH_GET_XCOMP_PERM): EINVAL"},
      {"get_and_request_fail",
       spr([](FakeCpu& c) { c.get_error = ENOSYS, c.request_error = ENOSYS; }), kAvx512, permission,
       "ARCH_REQ_XCOMP_PERM, XTILEDATA): ENOSYS"},
      {"request_claims_success_without_grant",
       spr([](FakeCpu& c) { c.request_grants = false, c.permitted = 0x2e7; }), kAvx512, permission,
       "permitted set is 0x2e7"},
      {"amx_without_avx512", spr([](FakeCpu& c) { c.at(7).ebx = 0, c.at(7).ecx = 0; }), kNone,
       kStageAvx512Cpuid, "missing: AVX512F"},
  };
}

std::vector<Profile> all_profiles() {
  std::vector<Profile> all = avx512_profiles();
  for (const Profile& p : amx_profiles()) all.push_back(p);
  return all;
}

class IsaProfileTest : public testing::TestWithParam<Profile> {};

TEST_P(IsaProfileTest, LevelAndFirstFailedStage) {
  const Profile& profile = GetParam();
  IsaReport report;
  const IsaFeatures features = detect(profile.cpu, IsaLevel::kAmx, &report);
  EXPECT_EQ(features.level, profile.level);
  EXPECT_EQ(report.level, profile.level);
  ASSERT_EQ(report.stages.size(), 5u);
  std::string failed;
  std::string detail;
  for (const IsaStage& stage : report.stages) {
    EXPECT_FALSE(stage.detail.empty()) << stage.name;
    if (!stage.passed && failed.empty()) {
      failed = stage.name;
      detail = stage.detail;
    }
  }
  EXPECT_EQ(failed, profile.failed_stage);
  EXPECT_NE(detail.find(profile.detail), std::string::npos) << detail;
}

// A flag means "may be executed": without state or permission none is set, whatever CPUID says.
TEST_P(IsaProfileTest, FlagsFollowState) {
  const IsaFeatures f = detect(GetParam().cpu, IsaLevel::kAmx, nullptr);
  const bool core = f.avx512_core;
  EXPECT_EQ(f.level >= IsaLevel::kAvx512, core && f.vnni);
  EXPECT_FALSE(!core && (f.vnni || f.bf16 || f.vbmi || f.vbmi2 || f.fp16));
  const bool amx = f.level == IsaLevel::kAmx;
  EXPECT_EQ(f.amx_tile, amx);
  EXPECT_EQ(f.amx_int8, amx);
  EXPECT_EQ(f.amx_bf16, amx);
  EXPECT_FALSE(!amx && f.amx_fp16);
}

TEST_P(IsaProfileTest, CapBelowAmxMakesNoArchPrctl) {
  const FakeCpu& cpu = GetParam().cpu;
  for (const IsaLevel cap : {IsaLevel::kNone, IsaLevel::kAvx512}) {
    cpu.calls.clear();
    IsaReport report;
    const IsaFeatures f = detect(cpu, cap, &report);
    EXPECT_TRUE(cpu.calls.empty());
    EXPECT_LE(f.level, cap);
    EXPECT_EQ(report.level, std::min(GetParam().level, IsaLevel::kAvx512));
    EXPECT_FALSE(f.amx_tile || f.amx_int8 || f.amx_bf16 || f.amx_fp16);
    EXPECT_FALSE(report.stages.at(4).passed);
    EXPECT_NE(report.stages.at(4).detail.find("not asked for"), std::string::npos);
  }
}

std::string profile_name(const testing::TestParamInfo<Profile>& info) {
  return info.param.name;
}
// reliability.md, A1.
TEST(IsaProfiles, AreAsManyAsPromised) {
  std::set<std::string> names;
  for (const Profile& p : all_profiles()) EXPECT_TRUE(names.insert(p.name).second) << p.name;
  RecordProperty("profiles", static_cast<int>(names.size()));
  EXPECT_GE(names.size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(Machines, IsaProfileTest, testing::ValuesIn(all_profiles()), profile_name);

TEST(IsaTest, FlagsOfKnownMachines) {
  const IsaFeatures spr_flags = detect(sapphire_rapids(), IsaLevel::kAmx, nullptr);
  EXPECT_TRUE(spr_flags.bf16 && spr_flags.vbmi && spr_flags.vbmi2 && spr_flags.fp16);
  EXPECT_TRUE(spr_flags.bmi2);
  EXPECT_FALSE(spr_flags.amx_fp16);
  IsaReport report;
  const IsaFeatures zen = detect(zen5(), IsaLevel::kAmx, &report);
  EXPECT_TRUE(zen.bf16 && zen.vbmi && zen.vbmi2);
  EXPECT_FALSE(zen.fp16);
  EXPECT_TRUE(report.avx512_bf16 && report.avx512_vbmi);
  EXPECT_FALSE(report.avx512_fp16);
  EXPECT_FALSE(zen.half_width_vectors || spr_flags.half_width_vectors);
  FakeCpu zen4 = zen5();
  zen4.at(1).eax = 0x00a10f11;  // family 25: 15 in the base field, 10 in the extended one
  EXPECT_TRUE(detect(zen4, IsaLevel::kAmx, nullptr).half_width_vectors);
  EXPECT_TRUE(zen.far_prefetch);
  EXPECT_FALSE(spr_flags.far_prefetch || detect(zen4, IsaLevel::kAmx, nullptr).far_prefetch);
  FakeCpu no_bf16 = zen5();
  no_bf16.at(7, 1).eax = 0;
  EXPECT_FALSE(detect(no_bf16, IsaLevel::kAmx, nullptr).bf16);
  FakeCpu no_subleaf = zen5();  // subleaf 1 would answer with ones in every bit
  no_subleaf.max_leaf7 = 0;
  EXPECT_FALSE(detect(no_subleaf, IsaLevel::kAmx, nullptr).bf16);
  EXPECT_FALSE(detect(no_subleaf, IsaLevel::kAmx, nullptr).amx_fp16);
}

TEST(IsaTest, AmxIsAskedForInOrderAndOnlyWhenNeeded) {
  const FakeCpu asks = sapphire_rapids();
  (void)detect(asks, IsaLevel::kAmx, nullptr);
  EXPECT_EQ(asks.calls,
            (std::vector<int>{kArchGetXcompPerm, kArchReqXcompPerm, kArchGetXcompPerm}));
  (void)detect(asks, IsaLevel::kAmx, nullptr);  // permitted by now: one more question, no request
  EXPECT_EQ(asks.calls.size(), 4u);
  EXPECT_EQ(asks.calls.back(), kArchGetXcompPerm);
  FakeCpu no_tiles = sapphire_rapids();
  no_tiles.xcr0 = kXcr0Avx512Only;
  (void)detect(no_tiles, IsaLevel::kAmx, nullptr);
  EXPECT_TRUE(no_tiles.calls.empty());
}

TEST(IsaTest, Brand) {
  const auto brand_of = [](const FakeCpu& cpu) {
    IsaReport report;
    (void)detect(cpu, IsaLevel::kAmx, &report);
    return report.cpu;
  };
  EXPECT_EQ(brand_of(sapphire_rapids()), "Intel(R) Xeon(R) Platinum 8480+");
  FakeCpu padded = zen5();
  set_brand(&padded, "   AMD EPYC   ");
  EXPECT_EQ(brand_of(padded), "AMD EPYC");
  set_brand(&padded, std::string("a\x1b[2Jb\xff", 7));
  EXPECT_EQ(brand_of(padded), "a?[2Jb?");
  set_brand(&padded, std::string(48, 'x'));  // no terminating zero
  EXPECT_EQ(brand_of(padded), std::string(48, 'x'));
  FakeCpu no_extended = zen5();
  no_extended.max_extended = 0;
  EXPECT_EQ(brand_of(no_extended), "AuthenticAMD");
  EXPECT_EQ(brand_of(FakeCpu()), "unknown");
}

CpuidRegs cache_leaf(uint32_t type, uint32_t level, uint32_t ways, uint32_t line, uint32_t sets,
                     uint32_t shared) {
  return {(shared - 1) << 14 | level << 5 | type, (ways - 1) << 22 | (line - 1), sets - 1, 0};
}

TEST(IsaTest, CacheSizes) {
  FakeCpu intel = sapphire_rapids();
  intel.set(4, 0, cache_leaf(1, 1, 12, 64, 64, 2));
  intel.set(4, 1, cache_leaf(2, 1, 8, 64, 64, 2));  // instructions: not ours
  intel.set(4, 2, cache_leaf(3, 2, 16, 64, 2048, 2));
  intel.set(4, 3, cache_leaf(3, 3, 15, 64, 114688, 128));
  CacheSizes c = detect(intel, IsaLevel::kAmx, nullptr).cache;
  EXPECT_EQ(c.l1d_bytes, 49152u);
  EXPECT_EQ(c.l2_bytes, 2097152u);
  EXPECT_EQ(c.l3_bytes, 110100480u);
  EXPECT_EQ(c.l3_shared_by, 128u);

  FakeCpu amd = zen5();
  amd.max_extended = 0x80000026u;
  amd.set(0x8000001du, 0, cache_leaf(1, 1, 12, 64, 64, 2));
  amd.set(0x8000001du, 1, cache_leaf(3, 2, 16, 64, 1024, 2));
  amd.set(0x8000001du, 2, cache_leaf(3, 3, 16, 64, 32768, 16));
  c = detect(amd, IsaLevel::kAmx, nullptr).cache;
  EXPECT_EQ(c.l1d_bytes, 49152u);
  EXPECT_EQ(c.l2_bytes, 1048576u);
  EXPECT_EQ(c.l3_bytes, 33554432u);
  EXPECT_EQ(c.l3_shared_by, 16u);
}

TEST(IsaTest, CacheSizesMasked) {
  CacheSizes c = detect(zen5(), IsaLevel::kAmx, nullptr).cache;
  EXPECT_EQ(c.l1d_bytes + c.l2_bytes + c.l3_bytes + c.l3_shared_by, 0u);
  FakeCpu legacy = zen5();  // what a Firecracker guest on Zen 5 shows
  legacy.set(0x80000005u, 0, {0, 0, 48u << 24, 0});
  legacy.set(0x80000006u, 0, {0, 0, 1024u << 16, 1016u << 18});
  c = detect(legacy, IsaLevel::kAmx, nullptr).cache;
  EXPECT_EQ(c.l1d_bytes, 49152u);
  EXPECT_EQ(c.l2_bytes, 1048576u);
  EXPECT_EQ(c.l3_bytes, 532676608u);
  EXPECT_EQ(c.l3_shared_by, 0u);
  FakeCpu endless = zen5();  // a hypervisor that answers every subleaf alike: must end
  for (uint32_t sub = 0; sub < 64; ++sub) endless.set(4, sub, cache_leaf(3, 2, 16, 64, 1024, 2));
  EXPECT_EQ(detect(endless, IsaLevel::kAmx, nullptr).cache.l2_bytes, 1048576u);
}

// The machine itself, held against what the kernel says about it.
TEST(IsaTest, ThisMachineAgreesWithProcCpuinfo) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0) {
      flags = line + " ";
      break;
    }
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo shows no flags";
  const auto has = [&flags](const std::string& f) {
    return flags.find(" " + f + " ") != std::string::npos;
  };
  IsaReport report;
  const IsaFeatures f = detect(system_cpu(), IsaLevel::kAvx512, &report);
  EXPECT_EQ(f.avx512_core, has("avx512f") && has("avx512dq") && has("avx512bw") && has("avx512vl"));
  EXPECT_EQ(f.vnni, has("avx512_vnni"));
  EXPECT_EQ(f.bf16, has("avx512_bf16"));
  EXPECT_EQ(f.vbmi, has("avx512vbmi"));
  EXPECT_EQ(f.vbmi2, has("avx512_vbmi2"));
  EXPECT_EQ(f.fp16, has("avx512_fp16"));
  EXPECT_EQ(f.bmi2, has("bmi2"));
  EXPECT_EQ(report.level >= IsaLevel::kAvx512, f.avx512_core && f.vnni);
}

}  // namespace
}  // namespace quern::jit
