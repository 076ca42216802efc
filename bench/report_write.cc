#include <nlohmann/json.hpp>

#include "bench/report.h"
#include "bench/report_format.h"

namespace quern::bench {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Roofs& roofs) {
  Json out = Json::object();
  for (const RoofName& name : kRoofNames) out[name.key] = roofs[name.roof];
  return out;
}

Json json_of(const RoofSet& roofs) {
  Json out = Json::array();
  for (const auto& [threads, pair] : roofs.of_threads) {
    Json entry{
        {"threads", threads}, {"before", json_of(pair.before)}, {"after", json_of(pair.after)}};
    entry["moved"] = moved(pair.before, pair.after);
    out.push_back(std::move(entry));
  }
  return out;
}

Json json_of(const MemoryPlan& plan) {
  return {{"llc_bytes", plan.llc_bytes},
          {"cache_bytes", plan.cache_bytes},
          {"cold_bytes", plan.cold_bytes},
          {"short_of_memory", plan.short_of_memory}};
}

Json json_of(const LimitCheck& check) {
  const Limit& limit = check.limit;
  return {{"roof", kRoofNames[static_cast<size_t>(limit.roof)].key},
          {"threads", limit.threads},
          {"when", check.when},
          {"median", limit.median},
          {"best", limit.best},
          {"with_loads", limit.with_loads},
          {"ours", check.ours},
          {"agrees", check.agrees()}};
}

Json json_of(const PeerRow& peer) {
  Json out = Json::object();
  if (!peer.kernel.empty()) out["kernel"] = peer.kernel;
  if (!peer.kernel.empty()) out["isa_cap"] = peer.isa_cap;
  if (peer.us.count > 0) {
    out["us"] = peer.us.median;
    out["block_mad_us"] = peer.us.mad;
    out["blocks"] = peer.us.count;
    out["ratio"] = peer.ratio;
  }
  if (!peer.note.empty()) out["note"] = peer.note;
  return out;
}

Json json_of(const Row& row, const RoofSet& roofs) {
  Json out{{"problem", to_string(row.problem)},
           {"kernel", row.kernel},
           {"verified", to_string(row.verified)}};
  if (!row.checked.empty()) out["checked"] = row.checked;
  if (!row.error.empty()) {
    out["error"] = row.error;
    return out;
  }
  out["us"] = row.us.median;
  out["mad_us"] = row.us.mad;
  out["calls"] = row.us.count;
  out["alternations"] = row.alternations;
  out["block_mad_us"] = row.block_mad;
  out["ops"] = row.work.ops;
  out["bytes"] = row.work.bytes;
  out["peak"] = name_of(row.work.peak);
  out["from_memory"] = row.work.from_memory;
  out["memory_gbps"] = row.work.memory_rate;
  out["memory_mad_gbps"] = row.work.memory_mad;
  out["gops"] = row.gops();
  out["gbps"] = row.gbps();
  out["copies"] = row.copies;
  const Floor floor = floor_of(row, roofs);
  if (floor.us > 0) {
    out["roof_percent"] = percent_of(floor, row.us.median);
    out["roof"] = floor.bound;
  }
  out["foreign_cpus"] = row.foreign;
  out["disturbed"] = row.disturbed();
  out["peer"] = json_of(row.peer);
  return out;
}

}  // namespace

std::string to_json(const Report& report) {
  Json out{{"format", kReportFormat}, {"version", kReportVersion}};
  out["command"] = report.command;
  out["started"] = report.started;
  out["cpu"] = report.cpu;
  out["cpus"] = report.roofs.cpus;
  out["level"] = report.level;
  out["revision"] = report.revision;
  out["context"] = Json::object();
  for (const auto& [key, value] : report.context) out["context"][key] = value;
  out["memory"] = json_of(report.memory);
  out["peer"] = {{"name", report.peer_name}, {"isa", report.peer_isa}};
  out["roofs"] = json_of(report.roofs);
  out["limits"] = Json::array();
  for (const LimitCheck& check : report.limits) out["limits"].push_back(json_of(check));
  out["rows"] = Json::array();
  for (const Row& row : report.rows) out["rows"].push_back(json_of(row, report.roofs));
  // Names come from the machine and from libraries: what is not UTF-8 must not stop a report.
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quern::bench
