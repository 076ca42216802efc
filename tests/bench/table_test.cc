#include "bench/table.h"

#include <gtest/gtest.h>

#include <string>

namespace quern::bench {
namespace {

using Align = TextTable::Align;
constexpr TextTable::Style kMarkdown = TextTable::Style::kMarkdown;
constexpr TextTable::Style kPlain = TextTable::Style::kPlain;

TEST(TextTable, ColumnsLineUp) {
  TextTable table({{"name"}, {"us", Align::kRight}});
  table.add({"a", "1.5"});
  table.add({"longer", "10000"});
  EXPECT_EQ(table.str(kMarkdown),
            "| name   |    us |\n"
            "| ------ | ----: |\n"
            "| a      |   1.5 |\n"
            "| longer | 10000 |\n");
}

TEST(TextTable, WidthCountsCharactersAndBarsAreEscaped) {
  TextTable table({{"x"}});
  table.add({"\xc2\xb5s"});  // two characters in three bytes
  table.add({"a|b\nc"});
  EXPECT_EQ(table.str(kMarkdown),
            "| x      |\n"
            "| ------ |\n"
            "| \xc2\xb5s     |\n"
            "| a\\|b c |\n");
}

TEST(TextTable, MissingCellsAreEmpty) {
  TextTable table({{"abc"}, {"def"}});
  table.add({"1"});
  EXPECT_EQ(table.str(kMarkdown), "| abc | def |\n| --- | --- |\n| 1   |     |\n");
}

TEST(TextTable, PlainHasNoBars) {
  TextTable table({{"name"}, {"us", Align::kRight}, {"x"}});
  table.add({"a|b", "1.5", ""});
  table.add({"longer", "10000", "y"});
  EXPECT_EQ(table.str(kPlain),
            "name       us  x\n"
            "------  -----  ---\n"
            "a|b       1.5\n"
            "longer  10000  y\n");
}

TEST(TextTable, ControlCharactersDoNotReachTheTerminal) {
  TextTable table({{"x"}});
  table.add({"\x1b[2J\ta\r"});
  EXPECT_EQ(table.str(kPlain).find_first_of("\x1b\t\r"), std::string::npos);
}

TEST(FormatNumber, FourSignificantDigitsNoExponent) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.41), "0.4100");
  EXPECT_EQ(format_number(12.344), "12.34");
  EXPECT_EQ(format_number(171.26), "171.3");
  EXPECT_EQ(format_number(1300.4), "1300");
  EXPECT_EQ(format_number(100678), "100678");
}

Row example_row() {
  Row row;
  row.problem = *parse_problem("int8_gemm/m:1/n:2048/k:4096/isa:avx512/thr:2/cold:1");
  row.kernel = "int8_gemm.avx512.x";
  row.us = {200, 2, 1000};
  row.work = {1.7e7, 8e6, Peak::kInt8, true};
  row.peer.us = {250, 1, 5};
  row.peer.ratio = 1.25;
  row.verified = Verified::kEqual;
  return row;
}

const RoofSet kRoofs = {2, {{2, {{2, {48, 1700, 850}}, {2, {52, 1700, 850}}}}}};

TEST(RowsTable, ShowsEveryColumn) {
  const std::string text = rows_table({example_row()}, kRoofs, "oneDNN 2.6.3", kMarkdown);
  // 8e6 bytes in 200 us are 40 GB/s, and 50 GB/s is the mean roof.
  for (const char* cell :
       {"| problem", "int8_gemm/m:1/n:2048/k:4096/isa:avx512/thr:2/cold:1", "int8_gemm.avx512.x",
        "200.0", "40.00 GB/s", "80 % DRAM", "oneDNN 2.6.3 us", "250.0", "1.25", "| equal"}) {
    EXPECT_NE(text.find(cell), std::string::npos) << cell << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("DISTURBED"), std::string::npos);
}

TEST(RowsTable, FailedCheckPrintsNoNumber) {
  Row row = example_row();
  row.verified = Verified::kFailed;
  row.error = "wrong result";
  const std::string text = rows_table({row}, kRoofs, "oneDNN 2.6.3", kMarkdown);
  for (const char* number : {"200", "250", "1.25", "80 %", "40.00"}) {
    EXPECT_EQ(text.find(number), std::string::npos) << number << " is in\n" << text;
  }
  EXPECT_NE(text.find("failed"), std::string::npos);
  EXPECT_NE(text.find("wrong result"), std::string::npos);
}

TEST(RowsTable, DisturbedRowsAndDeadPeersAreNamed) {
  Row row = example_row();
  row.foreign = 0.4;
  row.peer = {};
  row.peer.note = "peer process died of signal 9 (Killed)";
  const std::string text = rows_table({row}, kRoofs, "oneDNN 2.6.3", kMarkdown);
  EXPECT_NE(text.find("DISTURBED (0.40 CPUs taken)"), std::string::npos) << text;
  EXPECT_NE(text.find("peer process died of signal 9"), std::string::npos) << text;
  EXPECT_NE(footnotes({row}, "oneDNN 2.6.3").find("1 of 1 rows"), std::string::npos);
}

TEST(RowsTable, MoreThreadsThanCpusAreHeldToAllCpus) {
  Row row = example_row();
  row.problem.threads = 1000;
  EXPECT_NE(rows_table({row}, kRoofs, "", kMarkdown).find("80 % DRAM"), std::string::npos);
  row.problem.threads = 1;  // of which there is no roof
  EXPECT_EQ(rows_table({row}, kRoofs, "", kMarkdown).find("% DRAM"), std::string::npos);
}

TEST(RoofsTable, SaysWhichRoofMoved) {
  const RoofSet still = {2, {{2, {{2, {48, 1700, 850}}, {2, {49, 1700, 850}}}}}};
  EXPECT_EQ(roofs_table(still, kMarkdown).find("MOVED"), std::string::npos);
  const RoofSet fell = {2, {{1, {{1, {40, 850, 0}}, {1, {30, 850, 0}}}}}};
  const std::string text = roofs_table(fell, kMarkdown);
  EXPECT_NE(text.find("ROOFS MOVED, 1 thread: DRAM read moved from 40.0 to 30.0 GB/s"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("vdpbf16ps"), std::string::npos) << text;  // not measured, not listed
}

}  // namespace
}  // namespace quern::bench
