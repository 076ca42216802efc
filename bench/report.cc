#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace quern::bench {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Roofs& roofs) {
  return {{"dram_gbps", roofs.dram_gbps},
          {"int8_gops", roofs.int8_gops},
          {"bf16_gops", roofs.bf16_gops}};
}

const char* verified_name(Verified verified) {
  switch (verified) {
    case Verified::kEqual:
      return "equal";
    case Verified::kWithinBound:
      return "within bound";
    case Verified::kFailed:
      return "failed";
    case Verified::kNotAsked:
      break;
  }
  return "not asked";
}

Json json_of(const PeerRow& peer) {
  Json out;
  if (!peer.kernel.empty()) out["kernel"] = peer.kernel;
  if (peer.us.count > 0) {
    out["us"] = peer.us.median;
    out["ratio"] = peer.ratio;
  }
  if (!peer.note.empty()) out["note"] = peer.note;
  return out;
}

Json json_of(const Row& row, const std::map<int, RoofPair>& roofs) {
  Json out{{"problem", to_string(row.problem)},
           {"kernel", row.kernel},
           {"verified", verified_name(row.verified)}};
  if (!row.checked.empty()) out["checked"] = row.checked;
  if (!row.error.empty()) {
    out["error"] = row.error;
    return out;
  }
  out["us"] = row.us.median;
  out["mad_us"] = row.us.mad;
  out["calls"] = row.us.count;
  out["alternations"] = row.alternations;
  out["gops"] = row.gops();
  out["gbps"] = row.gbps();
  out["bytes"] = row.work.bytes;
  out["copies"] = row.copies;
  const auto found = roofs.find(std::max(1, static_cast<int>(row.problem.threads)));
  if (found != roofs.end()) {
    const Floor floor = floor_of(row.work, mean(found->second.before, found->second.after));
    if (floor.us > 0) {
      out["roof_percent"] = percent_of(floor, row.us.median);
      out["roof"] = floor.bound;
    }
  }
  out["foreign_cpus"] = row.foreign;
  out["disturbed"] = row.disturbed();
  out["peer"] = json_of(row.peer);
  return out;
}

}  // namespace

std::string to_text(const Report& report) {
  std::string out;
  for (const auto& [key, value] : report.context) out += fmt::format("- {}: {}\n", key, value);
  out += "\n" + roofs_table(report.roofs) + "\n";
  out += rows_table(report.rows, report.roofs, report.peer_name) + "\n";
  return out + footnotes(report.rows, report.peer_name);
}

std::string to_json(const Report& report) {
  Json out;
  for (const auto& [key, value] : report.context) out["context"][key] = value;
  out["peer"] = report.peer_name;
  out["roofs"] = Json::array();
  for (const auto& [threads, pair] : report.roofs) {
    Json entry{
        {"threads", threads}, {"before", json_of(pair.before)}, {"after", json_of(pair.after)}};
    entry["moved"] = moved(pair.before, pair.after);
    out["roofs"].push_back(std::move(entry));
  }
  out["rows"] = Json::array();
  for (const Row& row : report.rows) out["rows"].push_back(json_of(row, report.roofs));
  return out.dump(1) + "\n";
}

}  // namespace quern::bench
