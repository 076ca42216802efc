#include "bench/roofline_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "tests/bench/example_report.h"

namespace quern::bench {
namespace {

/// What keeps `text` from being well-formed XML (elements, attributes, the five entities, a
/// declaration; no comments, no CDATA, no DTD); empty: nothing.
class WellFormed {
 public:
  explicit WellFormed(const std::string& text) : text_(text) {}

  std::string fault() {
    if (text_.rfind("<?xml ", 0) == 0) at_ = text_.find("?>") + 2;
    while (at_ < text_.size() && error_.empty()) step();
    if (error_.empty() && !open_.empty()) return "not closed: " + open_.back();
    if (error_.empty() && roots_ != 1) return "not one root";
    return error_;
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '<') return tag();
    if (open_.empty() && !std::isspace(static_cast<unsigned char>(c))) error_ = "text outside";
    character();
  }
  void character() {
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') error_ = "control character";
    if (c == '&') {
      const std::string entity = text_.substr(at_, text_.find(';', at_) - at_ + 1);
      const std::vector<std::string> known = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
      if (std::find(known.begin(), known.end(), entity) == known.end()) error_ = "bad entity";
    }
    ++at_;
  }
  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '-' || text_[at_] == ':')) {
      ++at_;
    }
    if (begin == at_) error_ = "name expected";
    return text_.substr(begin, at_ - begin);
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void tag() {
    ++at_;
    if (take('/')) {
      const std::string closing = name();
      if (open_.empty() || open_.back() != closing) error_ = "closes " + closing;
      if (!open_.empty()) open_.pop_back();
      if (!take('>')) error_ = "> expected";
      return;
    }
    const std::string element = name();
    if (open_.empty()) ++roots_;
    std::vector<std::string> seen;
    while (error_.empty()) {
      skip_space();
      if (take('>')) return open_.push_back(element);
      if (take('/')) {
        if (!take('>')) error_ = "/> expected";
        return;
      }
      const std::string attribute = name();
      if (std::find(seen.begin(), seen.end(), attribute) != seen.end()) error_ = "twice";
      seen.push_back(attribute);
      if (!take('=') || !take('"')) error_ = "=\" expected";
      while (error_.empty() && at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '<') error_ = "< in an attribute";
        character();
      }
      if (!take('"')) error_ = "attribute not closed";
    }
  }

  const std::string& text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string error_;
};

std::string fault_of(const std::string& text) {
  return WellFormed(text).fault();
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

std::string chart(const Report& report) {
  std::vector<std::string> left_out;
  return roofline_svg(report, &left_out);
}

TEST(WellFormedXml, TheCheckerFindsFaults) {
  EXPECT_EQ(fault_of("<a x=\"1\"><b/>&lt;</a>"), "");
  for (const char* text :
       {"", "<a>", "<a></b>", "<a x=1/>", "<a>&</a>", "<a>&nbsp;</a>", "<a/><b/>", "<a x=\"<\"/>",
        "<a x=\"1\" x=\"2\"/>", "<a>\x01</a>", "x<a/>"}) {
    EXPECT_NE(fault_of(text), "") << text;
  }
}

/// quantize_rows is timed and held to the bandwidth; what it lacks is arithmetic with a peak.
TEST(RooflineSvg, SaysWhyARowHasNoPoint) {
  Report report = example_report();
  report.rows.resize(1);
  report.rows[0].problem.op = "quantize_rows";
  report.rows[0].work.ops = 0;
  report.rows[0].work.peak = Peak::kNone;
  std::vector<std::string> left_out;
  EXPECT_EQ(count(roofline_svg(report, &left_out), "<circle "), 0u);
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_NE(left_out[0].find("no arithmetic peak"), std::string::npos) << left_out[0];
}

TEST(RooflineSvg, OnePointForEachRowWithNumbers) {
  std::vector<std::string> left_out;
  const std::string svg = roofline_svg(example_report(), &left_out);
  EXPECT_EQ(fault_of(svg), "") << svg;
  EXPECT_EQ(count(svg, "<circle "), 1u);
  ASSERT_EQ(left_out.size(), 1u);  // the row that failed
  EXPECT_EQ(left_out[0].rfind("bf16_gemm/m:5/", 0), 0u);
  EXPECT_NE(left_out[0].find(": it did not run: "), std::string::npos) << left_out[0];
  EXPECT_EQ(count(svg, "class=\"bandwidth\""), 1u);
  EXPECT_EQ(count(svg, "class=\"ceiling\""), 2u);  // two peaks were measured
  EXPECT_NE(svg.find("bf16_gemm/m:4/n:2048/k:4096/isa:avx512/thr:2/cold:1: 400.0 us"),
            std::string::npos);
}

TEST(RooflineSvg, APanelForEachThreadCount) {
  Report report = example_report();
  report.roofs.of_threads[1] = {{1, {25, 850}}, {1, {25, 850}}};
  const std::string svg = chart(report);
  EXPECT_EQ(fault_of(svg), "");
  EXPECT_EQ(count(svg, "<g id="), 2u);
}

TEST(RooflineSvg, PointsStandWhereTheNumbersSay) {
  // On a log axis of two decades 10 stands in the middle; a point on the bandwidth line has the
  // coordinates of the line. 1e9 operations and 1e8 bytes: 10 op/byte; at the roof of 50 GB/s
  // 2000 us and 500 GOP/s.
  Report report = example_report();
  report.rows.resize(1);
  report.roofs.of_threads[2] = {{2, {50, 5000}}, {2, {50, 5000}}};
  report.rows[0].work = {1e9, 1e8, Peak::kInt8, true, IsaLevel::kAvx512};
  report.rows[0].us.median = 2000;
  const std::string svg = chart(report);
  // x: one decade below the ridge at 100, axis 1 to 100; y: axis 100 to 10000.
  const double middle = 80 + 0.5 * (900 - 80 - 250);
  const std::string x = std::to_string(middle).substr(0, 5);
  EXPECT_NE(svg.find("cx=\"" + x + "\""), std::string::npos) << svg;
}

TEST(RooflineSvg, HostileNamesAndNumbersStayXml) {
  Report report = example_report();
  report.cpu = "<script>&\"'\x01\x1f]]>";
  report.revision = "--><";
  report.rows.resize(1);
  EXPECT_EQ(fault_of(chart(report)), "") << chart(report);
  for (const double ops : {1e-9, 1.0, 1e18}) {
    for (const double bytes : {1e-9, 1e18}) {
      for (const double us : {1e-9, 1e18}) {
        report.rows[0].work.ops = ops;
        report.rows[0].work.bytes = bytes;
        report.rows[0].us.median = us;
        const std::string svg = chart(report);
        EXPECT_EQ(fault_of(svg), "");
        EXPECT_EQ(svg.find("nan"), std::string::npos) << ops << " " << bytes << " " << us;
        EXPECT_EQ(svg.find("inf"), std::string::npos) << ops << " " << bytes << " " << us;
        EXPECT_LT(svg.size(), 200000u);
      }
    }
  }
}

TEST(RooflineSvg, WithoutRowsOrRoofsThereIsStillAChart) {
  EXPECT_EQ(fault_of(chart(Report{})), "");
  Report report = example_report();
  report.roofs.of_threads.clear();
  EXPECT_EQ(fault_of(chart(report)), "");
  report = example_report();
  report.roofs.of_threads[2] = {};
  EXPECT_EQ(fault_of(chart(report)), "");
}

}  // namespace
}  // namespace quern::bench
