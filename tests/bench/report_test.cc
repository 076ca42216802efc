#include "bench/report.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "bench/usage_error.h"
#include "tests/bench/example_report.h"

namespace quern::bench {
namespace {

TEST(Report, JsonIsOneObjectAndNothingElse) {
  const std::string text = to_json(example_report());
  const auto json = nlohmann::json::parse(text);  // throws on trailing text
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["context"]["cpu"], "a \"quoted\" name");
  ASSERT_EQ(json["roofs"].size(), 1u);
  EXPECT_EQ(json["roofs"][0]["before"]["dram_gbps"], 48);
  ASSERT_EQ(json["roofs"][0]["moved"].size(), 1u);
  ASSERT_EQ(json["rows"].size(), 2u);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["problem"], "bf16_gemm/m:4/n:2048/k:4096/isa:avx512/thr:2/cold:1");
  EXPECT_EQ(row["us"], 400);
  EXPECT_EQ(row["roof"], "DRAM");
  EXPECT_NEAR(row["roof_percent"].get<double>(), 80, 1e-9);  // 16e6 B / 50 GB/s = 320 us
  EXPECT_EQ(row["peer"]["us"], 500);
  EXPECT_EQ(row["peer"]["ratio"], 1.25);
}

TEST(Report, JsonHoldsWhatItTakesToRepeatTheRun) {
  const auto json = nlohmann::json::parse(to_json(example_report()));
  EXPECT_EQ(json["format"], "quern-bench");
  EXPECT_EQ(json["version"], 2);
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
  const auto json = nlohmann::json::parse(to_json(example_report()));
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
  const std::string text = to_text(example_report(), TextTable::Style::kMarkdown);
  const size_t context = text.find("- cpu: "), roofs = text.find("| roof "),
               rows = text.find("| problem "), notes = text.find("ratio: oneDNN 2.6.3 time");
  ASSERT_NE(notes, std::string::npos) << text;
  EXPECT_LT(context, roofs);
  EXPECT_LT(roofs, rows);
  EXPECT_LT(rows, notes);
}

TEST(Report, WhatIsReadIsWhatWasWritten) {
  Report written = example_report();
  written.rows[0].work.memory_rate = 40;  // the run's DRAM roof is 50
  const Report read = report_from_json(to_json(written), "x");
  // Everything that a table shows or JSON holds, seen through both.
  EXPECT_EQ(to_json(read), to_json(written));
  const std::string text = to_text(read, TextTable::Style::kPlain);
  EXPECT_EQ(text, to_text(written, TextTable::Style::kPlain));
  EXPECT_NE(text.find("100 % DRAM"), std::string::npos) << "held to the rate beside it: " << text;
}

TEST(Report, NamesThatAreNotUtf8DoNotStopAReport) {
  Report report = example_report();
  report.cpu = "odd \xff\xfe name";
  EXPECT_NO_THROW(report_from_json(to_json(report), "x"));
}

std::string error_of(const std::string& text) {
  try {
    report_from_json(text, "a.json");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

using Json = nlohmann::ordered_json;

/// The error after `change` was made to a good report.
std::string error_after(const std::function<void(Json&)>& change) {
  Json json = Json::parse(to_json(example_report()));
  change(json);
  return error_of(json.dump());
}

TEST(Report, EveryTruncationIsRefusedAndNamesTheFile) {
  const std::string text = to_json(example_report());
  const size_t end = text.find_last_of('}');
  for (size_t length = 0; length <= end; length += length < 50 ? 1 : 37) {
    const std::string error = error_of(text.substr(0, length));
    EXPECT_EQ(error.rfind("a.json: is not JSON, or was cut off: ", 0), 0u) << length << error;
  }
}

TEST(Report, OtherFilesAreRefused) {
  for (const char* text : {"[]", "{}", "3", "null", "\"quern-bench\"", "{\"format\":\"x\"}",
                           "{\"format\":3}", "{\"benchmarks\":[]}"}) {
    EXPECT_EQ(error_of(text).rfind("a.json", 0), 0u) << text << ": " << error_of(text);
  }
  EXPECT_NE(error_of("{\"rows\":1e999}").find("a.json: is not JSON"), std::string::npos);
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  for (const std::string& text : {deep, deep.substr(0, 200000), "{\"format\":" + deep + "}"}) {
    EXPECT_NE(error_of(text).find("a.json: is nested too deeply"), std::string::npos);
  }
}

TEST(Report, AnotherVersionIsNamed) {
  EXPECT_EQ(error_after([](Json& j) { j["version"] = 1; }),
            "a.json.version: expected 2 (another version of quern-bench wrote it), got 1");
  EXPECT_EQ(error_after([](Json& j) { j.erase("version"); }), "a.json.version: is missing");
}

TEST(Report, FaultsNameKeyExpectedAndGot) {
  const auto row = [](const char* key, const Json& value) {
    return error_after([&](Json& j) { j["rows"][0][key] = value; });
  };
  EXPECT_EQ(row("us", "fast"), "a.json.rows[0].us: expected a number, got \"fast\"");
  EXPECT_EQ(row("us", -1), "a.json.rows[0].us: expected 0 or a number from 1e-9 to 1e18, got -1");
  EXPECT_EQ(row("us", 0), "a.json.rows[0].us: expected a time above 0, got 0");
  for (const char* key : {"us", "mad_us", "block_mad_us", "ops", "bytes", "foreign_cpus"}) {
    for (const Json& value : {Json(1e300), Json(-0.5), Json(1e-300), Json(nullptr), Json("1"),
                              Json(true), Json::array(), Json::object()}) {
      EXPECT_EQ(row(key, value).rfind(std::string("a.json.rows[0].") + key, 0), 0u)
          << key << " " << value;
    }
  }
  EXPECT_NE(row("calls", 1.5).find("a whole number"), std::string::npos);
  EXPECT_NE(row("problem", "int9_gemm/m:1").find("a problem string"), std::string::npos);
  EXPECT_NE(row("verified", "perhaps").find("equal, within bound"), std::string::npos);
  EXPECT_NE(row("peak", "f64").find("int8, bf16 or none"), std::string::npos);
  EXPECT_NE(row("from_memory", 1).find("true or false"), std::string::npos);
  EXPECT_NE(row("peer", 3).find("an object"), std::string::npos);
  EXPECT_NE(error_after([](Json& j) { j["cpus"] = 0; }).find("a.json.cpus"), std::string::npos);
  EXPECT_NE(error_after([](Json& j) { j["roofs"] = 1; }).find("a list"), std::string::npos);
  EXPECT_NE(error_after([](Json& j) { j["limits"][0]["roof"] = "L9"; }).find("a roof"),
            std::string::npos);
  EXPECT_NE(error_after([](Json& j) { j["context"]["cpu"] = 1; }).find("context.cpu"),
            std::string::npos);
}

TEST(Report, EveryKeyIsNeeded) {
  const Json whole = Json::parse(to_json(example_report()));
  for (const auto& entry : whole.items()) {
    EXPECT_EQ(error_after([&](Json& j) { j.erase(entry.key()); }).rfind("a.json", 0), 0u)
        << entry.key();
  }
  for (const auto& entry : whole["rows"][0].items()) {
    const std::string key = entry.key();
    const bool derived = key == "gops" || key == "gbps" || key == "roof_percent" || key == "roof" ||
                         key == "disturbed" || key == "checked";
    const std::string error = error_after([&](Json& j) { j["rows"][0].erase(key); });
    EXPECT_EQ(error, derived ? "no error" : "a.json.rows[0]." + key + ": is missing");
  }
}

}  // namespace
}  // namespace quern::bench
