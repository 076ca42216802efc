#pragma once

#include "bench/report.h"

namespace quern::bench {

/// A run of two threads with a row that has numbers and one that failed its check. The floor of the
/// first is 320 us (16e6 bytes at the mean bandwidth of 50 GB/s), so it is at 80 % of the roof.
inline Report example_report() {
  Report report;
  report.context = {{"cpu", "a \"quoted\" name"}, {"quern", "0.1.0"}};
  report.command = "quern-bench --quick";
  report.started = "2026-11-30T10:00:00Z";
  report.cpu = "a \"quoted\" name";
  report.level = "avx512";
  report.revision = "0123456789ab";
  report.peer_name = "oneDNN 2.6.3";
  report.peer_isa = "row";
  report.memory = {size_t{480} << 20, size_t{480} << 20, size_t{960} << 20, false};
  report.roofs.cpus = 2;
  report.roofs.of_threads[2] = {{2, {48, 1700, 850}}, {2, {52, 1700, 850}}};
  report.limits = {{"before", {Roof::kDram, 2, 47, 49, false}, 48}};
  Row good;
  good.problem = *parse_problem("bf16_gemm/m:4/n:2048/k:4096/isa:avx512/thr:2/cold:1");
  good.kernel = "bf16_gemm.avx512.x";
  good.us = {400, 3, 500};
  good.alternations = 5;
  good.block_mad = 2;
  good.copies = 40;
  good.verified = Verified::kWithinBound;
  good.checked = "36 of 8192 elements";
  good.work = {6.7e7, 16e6, Peak::kBf16, true, IsaLevel::kAvx512};
  good.peer.us = {500, 1, 5};
  good.peer.ratio = 1.25;
  good.peer.kernel = "brg:avx512_core_bf16 bf16";
  good.peer.isa_cap = "AVX512_CORE_BF16";
  Row bad = good;
  bad.problem.m = 5;
  bad.verified = Verified::kFailed;
  bad.error = "wrong result: C[0, 1] = 2, reference 3 with bound 0";
  report.rows = {good, bad};
  return report;
}

}  // namespace quern::bench
