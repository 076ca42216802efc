#pragma once

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "jit/code_memory.h"
#include "ops/context_impl.h"
#include "tests/ops/one_blocking.h"
#include "tests/ops/other_maker.h"
#include "tests/ops/test_pools.h"
#include "tests/support/isa_list.h"

/// What may not change a bit of a product's result, for GEMMs and bmm alike. `Case` is a GemmCase
/// or a BmmCase: bits_in(context, case) and to_string(case) are all that is asked of it.
namespace quern::test {

/// Calls `check(pool)` with pools of many sizes, each running its threads in every order.
template <typename Check>
void for_scripted_pools(const Check& check) {
  for (const int threads : {1, 2, 3, 4, 5, 7, 8, 11, 16, 64}) {
    for (const auto order : {ScriptedPool::Order::kAscending, ScriptedPool::Order::kDescending,
                             ScriptedPool::Order::kRandom}) {
      ScriptedPool pool(threads, order);
      check(pool);
    }
  }
}

template <typename Case>
std::vector<std::vector<uint32_t>> bits_of_all(const Context& ctx, const std::vector<Case>& cases) {
  std::vector<std::vector<uint32_t>> bits;
  for (const Case& c : cases) bits.push_back(bits_in(ctx, c));
  return bits;
}

template <typename Case>
void expect_same_bits_with_real_threads(const TestIsa& isa, const std::vector<Case>& cases) {
  const std::vector<std::vector<uint32_t>> expected = bits_of_all(shared_context(isa), cases);
  for (int threads = 1; threads <= 16; ++threads) {
    auto pool = PersistentPool::create(threads);
    ASSERT_TRUE(pool.ok()) << pool.status().message();
    const Context threaded = context_at(isa, pool->get());
    for (size_t at = 0; at < cases.size(); ++at) {
      EXPECT_EQ(bits_in(threaded, cases[at]), expected[at])
          << threads << " " << to_string(cases[at]);
    }
  }
}

/// `expected` is bits_of_all() of the cases without a tuning source.
template <typename Case>
void expect_same_bits_with_blocking(const TestIsa& isa, const GemmBlocking& b,
                                    const std::vector<Case>& cases,
                                    const std::vector<std::vector<uint32_t>>& expected) {
  const OneBlocking tuning(b);
  const Context tuned = context_at(isa, nullptr, &tuning);
  for (size_t at = 0; at < cases.size(); ++at) {
    EXPECT_EQ(bits_in(tuned, cases[at]), expected[at])
        << "mr " << b.mr << " nr " << b.nr << " mc " << b.mc << " nc " << b.nc << " kc " << b.kc
        << " " << to_string(cases[at]);
  }
}

/// Dot products where they are fast, two FMAs where they are slow or missing, and results rounded
/// with or without vcvtneps2bf16: the bits are the same.
template <typename Case>
void expect_same_bits_without_avx512_bf16(const TestIsa& isa, const std::vector<Case>& cases) {
  const Context& ctx = shared_context(isa);
  const std::vector<std::vector<uint32_t>> expected = bits_of_all(ctx, cases);
  const jit::CpuSource& base = cpu_at(isa);
  const OtherMaker with(base, true, kAuthenticAmd), slow(base, true, kGenuineIntel),
      without(base, false, kAuthenticAmd);
  ContextOptions options;
  options.max_isa = isa.level;
  const bool native = ctx.isa_report().avx512_bf16;
  for (const jit::CpuSource* cpu :
       std::initializer_list<const jit::CpuSource*>{&with, &slow, &without}) {
    if (cpu != &without && !native) continue;
    const auto other = make_context(options, *cpu, jit::system_memory());
    ASSERT_TRUE(other.ok()) << other.status().message();
    for (size_t at = 0; at < cases.size(); ++at) {
      EXPECT_EQ(bits_in(*other, cases[at]), expected[at]) << to_string(cases[at]);
    }
  }
}

/// What a host may have put into MXCSR: as it starts, subnormals as zero in or out, another
/// rounding.
inline constexpr unsigned kHostMxcsr[] = {0x1F80, 0x1FC0, 0x9F80, 0x9FC0, 0x3F80};

/// Calls `run` with it and expects to find it unchanged; what follows has the default again.
template <typename Run>
Status run_with_mxcsr(unsigned mxcsr, const Run& run) {
  _mm_setcsr(mxcsr);
  const Status status = run();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(0x1F80);
  EXPECT_EQ(after, mxcsr);
  return status;
}

}  // namespace quern::test
