#include "model_smoke/plan_text.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace quern::smoke {
namespace {

/// "from..to: BLOCKING, kernel NAME (SOURCE)", or without the second number.
bool parse_rows(const std::string& text, PlanText::Rows* out) {
  std::istringstream in(text);
  char dot1 = 0, dot2 = 0;
  if (!(in >> out->from >> dot1 >> dot2) || dot1 != '.' || dot2 != '.') return false;
  if (in.peek() == ':') {
    out->to = INT64_MAX;
  } else if (!(in >> out->to)) {
    return false;
  }
  in.get();
  std::getline(in >> std::ws, out->blocking);
  const std::string word = ", kernel ";
  const size_t at = out->blocking.find(word);
  if (at == std::string::npos) return true;
  const size_t name = at + word.size();
  const size_t end = std::min(out->blocking.find(' ', name), out->blocking.size());
  out->kernel = out->blocking.substr(name, end - name);
  out->blocking.erase(at, end - at);
  return true;
}

}  // namespace

std::string PlanText::family() const {
  std::string text;
  for (const Candidate& c : candidates) {
    if (c.refused.empty()) text += (text.empty() ? "" : "+") + c.family;
  }
  return text;
}

std::string PlanText::kernels_for(int64_t m) const {
  std::string text;
  for (const std::string& kernel : common) text += (text.empty() ? "" : " + ") + kernel;
  for (const Rows& r : rows) {
    if (m >= r.from && m <= r.to) text += (text.empty() ? "" : " + ") + r.kernel;
  }
  return text;
}

PlanText parse_plan_text(const std::string& explain) {
  constexpr char kRefused[] = ": refused: ";
  constexpr char kChosen[] = ": chosen";
  PlanText out;
  std::istringstream text(explain);
  for (std::string line; std::getline(text, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    line.erase(0, begin);
    PlanText::Rows rows;
    if (line.starts_with("kernel ")) {
      const size_t end = line.find(' ', 7);
      out.kernels.push_back(line.substr(7, end == std::string::npos ? end : end - 7));
      if (end == std::string::npos) out.common.push_back(out.kernels.back());
    } else if (line.starts_with("m ") && parse_rows(line.substr(2), &rows)) {
      out.rows.push_back(rows);
    } else if (const size_t at = line.find(kRefused);
               at != std::string::npos && line.find(' ') > at) {
      out.candidates.push_back({line.substr(0, at), line.substr(at + sizeof(kRefused) - 1)});
    } else if (const size_t chosen = line.find(kChosen);  // "amx: chosen for m 1..8" too
               chosen != std::string::npos && line.find(' ') > chosen) {
      out.candidates.push_back({line.substr(0, chosen), ""});
    }
  }
  return out;
}

std::string families_of(const std::vector<PlanText>& plans) {
  std::set<std::string> families;
  for (const PlanText& plan : plans) {
    for (const PlanText::Candidate& c : plan.candidates) {
      if (c.refused.empty()) families.insert(c.family);
    }
  }
  std::string text;
  for (const std::string& family : families) text += (text.empty() ? "" : "+") + family;
  return text.empty() ? "none" : text;
}

}  // namespace quern::smoke
