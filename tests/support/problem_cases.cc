#include "tests/support/problem_cases.h"

namespace quern::test {

const std::vector<ProblemCase>& problem_cases() {
  static const std::vector<ProblemCase> cases = {
      // Nothing to do, and next to nothing.
      {"empty_m", "m:0/n:16/k:64", "no rows: nothing is read or written"},
      {"empty_n", "m:4/n:0/k:64", "no columns"},
      {"empty_k", "m:4/n:20/k:0", "an empty sum is zero and still gets the epilogue"},
      {"one", "m:1/n:1/k:1", "the smallest problem"},
      // Register blocks and panels of 16 columns.
      {"panel_minus_1", "m:3/n:15/k:64", "B17: one column less than a panel"},
      {"panel_plus_1", "m:3/n:17/k:64", "B17: the second panel holds one column"},
      {"panel_one_column", "m:3/n:1/k:64", "B17: N = 1"},
      {"four_panels", "m:6/n:64/k:256", "the widest register block, full"},
      {"four_panels_plus_1", "m:7/n:65/k:256", "one row and one column over the register block"},
      {"rows_33", "m:33/n:32/k:64", "B01: more rows than one block, last block of one row"},
      {"rows_65", "m:65/n:32/k:64", "B01"},
      {"rows_5_after_16_16", "m:37/n:48/k:96", "B06: row blocks 16, 16, 5"},
      // Depth.
      {"k_unroll_minus_1", "m:5/n:33/k:15", "below one unrolled step of int8"},
      {"k_cache_block", "m:5/n:40/k:4096", "deep enough that blocking may cut K"},
      {"k_cache_block_tail", "m:5/n:40/k:4099", "the last cut is not a multiple of anything"},
      {"k_65536", "m:2/n:5/k:65536", "the fixed cut of long integer sums"},
      {"k_65537", "m:2/n:5/k:65537", "one element after the cut"},
      {"k_131071", "m:2/n:3/k:131071", "the last depth whose s8 sums fit 32 bits"},
      {"k_131073", "m:2/n:3/k:131073", "beyond it: partial sums in 64 bits"},
      // Primes: no dimension is a multiple of anything.
      {"prime_small", "m:7/n:13/k:19", "primes below a vector"},
      {"prime_medium", "m:23/n:67/k:101", "primes"},
      {"prime_large", "m:31/n:131/k:257", "primes"},
      {"prime_wide", "m:2/n:1009/k:37", "more columns than any block"},
      {"prime_tall", "m:127/n:11/k:61", "more rows than any block"},
      {"prime_deep", "m:3/n:17/k:1021", "more depth than any unroll"},
      // qwen35_docs: hidden 256, intermediate 512, 4 heads of 64, vocabulary 1024.
      {"qkvz_m1", "m:1/n:768/k:256", "delta net input projection, decode"},
      {"qkvz_m3", "m:3/n:768/k:256", "delta net input projection, three rows"},
      {"qkvz_m16", "m:16/n:768/k:256", "delta net input projection, the ridge"},
      {"ba_m1", "m:1/n:4/k:256", "delta net gates: four columns"},
      {"ba_m16", "m:16/n:4/k:256", "delta net gates: four columns"},
      {"q_gate_m3", "m:3/n:512/k:256", "query and gate of gated attention"},
      {"kv_m1", "m:1/n:128/k:256", "keys, values"},
      {"kv_m16", "m:16/n:128/k:256", "keys, values"},
      {"o_m3", "m:3/n:256/k:256", "output projection"},
      {"gate_up_m1", "m:1/n:512/k:256", "MLP in, decode"},
      {"gate_up_m16", "m:16/n:512/k:256", "MLP in"},
      {"down_m1", "m:1/n:256/k:512", "MLP out, decode"},
      {"down_m16", "m:16/n:256/k:512", "MLP out"},
      {"lm_head_m1", "m:1/n:1024/k:256", "logits"},
      {"lm_head_m3", "m:3/n:1024/k:256", "logits"},
      // Named rows of bug_log.md; what needs special values has tests of its own.
      {"T01_shape", "m:17/n:16/k:33", "T01: K tail behind a full step"},
      {"T02_shape", "m:4/n:4/k:64", "T02: pairs that a 16-bit path saturates"},
      {"B02_m1", "m:1/n:80/k:96", "B02"},
      {"B02_m23", "m:23/n:80/k:96", "B02"},
      {"B02_m40", "m:40/n:80/k:96", "B02"},
      {"B03_m1", "m:1/n:4/k:20", "B03: tiny shape, M known at run time only"},
      {"B03_m70", "m:70/n:4/k:20", "B03"},
      {"B04_n33", "m:2/n:33/k:16", "B04: bias flush against a guard page, N tail"},
      {"B05_k65", "m:20/n:33/k:65", "B05: K tails back to back"},
      {"B05_k127", "m:20/n:33/k:127", "B05"},
      {"B14_shape", "m:5/n:17/k:33", "B14: packing tails in both directions"},
      {"B22_shape", "m:64/n:64/k:64", "B22: bf16 on CPUs that are not Intel's"},
      {"I02_shape", "m:4/n:4/k:4", "I02: 4 x 4 x 4"},
      {"I03_shape", "m:64/n:32/k:32", "I03"},
  };
  return cases;
}

}  // namespace quern::test
