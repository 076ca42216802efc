#include "bench/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace quern::bench {
namespace {

Report example() {
  Report report;
  report.context = {{"cpu", "a \"quoted\" name"}, {"quern", "0.1.0"}};
  report.peer_name = "oneDNN 2.6.3";
  report.peer_isa = "row";
  report.command = "quern-bench --quick";
  report.started = "2026-11-30T10:00:00Z";
  report.cpu = "a \"quoted\" name";
  report.level = "avx512";
  report.revision = "0123456789ab";
  report.memory = {size_t{480} << 20, size_t{480} << 20, size_t{960} << 20, false};
  report.roofs.cpus = 2;
  report.roofs.of_threads[2] = {{2, {48, 1700, 850}}, {2, {52, 1700, 850}}};
  report.limits = {{"before", {Roof::kDram, 2, 47, 49, false}, 48}};
  Row good;
  good.problem = *parse_problem("bf16_gemm/m:4/n:2048/k:4096/thr:2/cold:1");
  good.us = {400, 3, 500};
  good.alternations = 5;
  good.block_mad = 2;
  good.copies = 40;
  good.verified = Verified::kWithinBound;
  good.peer.kernel = "brg:avx512_core_bf16 bf16";
  good.peer.isa_cap = "AVX512_CORE_BF16";
  good.work = {6.7e7, 16e6, Peak::kBf16, true};
  good.peer.us = {500, 1, 5};
  good.peer.ratio = 1.25;
  Row bad = good;
  bad.verified = Verified::kFailed;
  bad.error = "wrong result: C[0, 1] = 2, reference 3 with bound 0";
  report.rows = {good, bad};
  return report;
}

TEST(Report, JsonIsOneObjectAndNothingElse) {
  const std::string text = to_json(example());
  const auto json = nlohmann::json::parse(text);  // throws on trailing text
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["context"]["cpu"], "a \"quoted\" name");
  ASSERT_EQ(json["roofs"].size(), 1u);
  EXPECT_EQ(json["roofs"][0]["before"]["dram_gbps"], 48);
  ASSERT_EQ(json["roofs"][0]["moved"].size(), 1u);
  ASSERT_EQ(json["rows"].size(), 2u);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["problem"], "bf16_gemm/m:4/n:2048/k:4096/thr:2/cold:1");
  EXPECT_EQ(row["us"], 400);
  EXPECT_EQ(row["roof"], "DRAM");
  EXPECT_NEAR(row["roof_percent"].get<double>(), 80, 1e-9);  // 16e6 B / 50 GB/s = 320 us
  EXPECT_EQ(row["peer"]["us"], 500);
  EXPECT_EQ(row["peer"]["ratio"], 1.25);
}

TEST(Report, JsonHoldsWhatItTakesToRepeatTheRun) {
  const auto json = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(json["format"], "quern-bench");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["command"], "quern-bench --quick");
  EXPECT_EQ(json["started"], "2026-11-30T10:00:00Z");
  EXPECT_EQ(json["cpu"], "a \"quoted\" name");
  EXPECT_EQ(json["cpus"], 2);
  EXPECT_EQ(json["level"], "avx512");
  EXPECT_EQ(json["revision"], "0123456789ab");
  EXPECT_EQ(json["peer"]["name"], "oneDNN 2.6.3");
  EXPECT_EQ(json["peer"]["isa"], "row");
  EXPECT_EQ(json["memory"]["cold_bytes"], 960 << 20);
  EXPECT_EQ(json["roofs"][0]["after"]["dram_gbps"], 52);
  EXPECT_EQ(json["limits"][0]["agrees"], true);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["mad_us"], 3);
  EXPECT_EQ(row["calls"], 500);
  EXPECT_EQ(row["alternations"], 5);
  EXPECT_EQ(row["block_mad_us"], 2);
  EXPECT_EQ(row["copies"], 40);
  EXPECT_EQ(row["verified"], "within bound");
  EXPECT_EQ(row["peer"]["isa_cap"], "AVX512_CORE_BF16");
  EXPECT_EQ(row["peer"]["block_mad_us"], 1);
}

TEST(Report, AFailedRowHasNoNumbersInJson) {
  const auto json = nlohmann::json::parse(to_json(example()));
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["verified"], "failed");
  EXPECT_FALSE(row.contains("us"));
  EXPECT_FALSE(row.contains("peer"));
  EXPECT_FALSE(row.contains("roof_percent"));
}

TEST(Report, AnEmptyRunIsStillJson) {
  const auto json = nlohmann::json::parse(to_json(Report{}));
  EXPECT_TRUE(json["rows"].empty());
}

TEST(Report, TextHasContextRoofsRowsAndFootnotes) {
  const std::string text = to_text(example(), TextTable::Style::kMarkdown);
  const size_t context = text.find("- cpu: "), roofs = text.find("| roof "),
               rows = text.find("| problem "), notes = text.find("ratio: oneDNN 2.6.3 time");
  ASSERT_NE(notes, std::string::npos) << text;
  EXPECT_LT(context, roofs);
  EXPECT_LT(roofs, rows);
  EXPECT_LT(rows, notes);
}

}  // namespace
}  // namespace quern::bench
