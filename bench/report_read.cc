#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/report.h"
#include "bench/report_format.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

using Json = nlohmann::json;

// Of anything in a report, unless it is 0: what is computed from two numbers stays finite and above
// 0.
constexpr double kLeastNumber = 1e-9;
constexpr double kMostNumber = 1e18;
constexpr int kMostThreads = 1 << 20;

/// A value and where it stands, for messages: "a.json: rows[3].us: expected ..., got ...".
class Node {
 public:
  Node(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& expected) const {
    std::string got = json_.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (got.size() > 60) got = got.substr(0, 57) + "...";
    throw UsageError(fmt::format("{}: expected {}, got {}", path_, expected, got));
  }

  bool has(const char* key) const { return object().contains(key); }
  Node operator[](const char* key) const {
    const auto found = object().find(key);
    if (found == json_.end()) throw UsageError(fmt::format("{}.{}: is missing", path_, key));
    return {*found, path_ + "." + key};
  }
  template <typename Visit>
  void each(Visit&& visit) const {
    if (!json_.is_array()) fail("a list");
    for (size_t i = 0; i < json_.size(); ++i)
      visit(Node(json_[i], fmt::format("{}[{}]", path_, i)));
  }
  const Json& object() const {
    if (!json_.is_object()) fail("an object");
    return json_;
  }
  std::string text() const {
    if (!json_.is_string()) fail("a text");
    return json_.get<std::string>();
  }
  double number() const {
    if (!json_.is_number()) fail("a number");
    const double value = json_.get<double>();
    const bool in_range = value >= kLeastNumber && value <= kMostNumber;
    if (value != 0 && !in_range) fail("0 or a number from 1e-9 to 1e18");
    return value;
  }
  int64_t whole() const {
    const double value = number();
    if (value != std::floor(value)) fail("a whole number");
    return static_cast<int64_t>(value);
  }
  int threads() const {
    const int64_t value = whole();
    if (value < 1 || value > kMostThreads) fail("a number of threads");
    return static_cast<int>(value);
  }
  bool truth() const {
    if (!json_.is_boolean()) fail("true or false");
    return json_.get<bool>();
  }
  const std::string& path() const { return path_; }

 private:
  const Json& json_;
  std::string path_;
};

Roofs read_roofs(const Node& node, int threads) {
  Roofs roofs{threads, {}};
  for (const RoofName& name : kRoofNames) roofs[name.roof] = node[name.key].number();
  return roofs;
}

LimitCheck read_limit(const Node& node) {
  LimitCheck check;
  const std::string key = node["roof"].text();
  bool known = false;
  for (const RoofName& name : kRoofNames) {
    if (key != name.key) continue;
    check.limit.roof = name.roof;
    known = true;
  }
  if (!known) node["roof"].fail("the key of a roof");
  check.when = node["when"].text();
  check.limit.threads = node["threads"].threads();
  check.limit.median = node["median"].number();
  check.limit.best = node["best"].number();
  check.limit.with_loads = node["with_loads"].truth();
  check.ours = node["ours"].number();
  return check;
}

PeerRow read_peer(const Node& node) {
  PeerRow peer;
  if (node.has("kernel")) peer.kernel = node["kernel"].text();
  if (node.has("isa_cap")) peer.isa_cap = node["isa_cap"].text();
  if (node.has("note")) peer.note = node["note"].text();
  if (!node.has("us")) return peer;
  peer.us.median = node["us"].number();
  peer.us.mad = node["block_mad_us"].number();
  peer.us.count = node["blocks"].whole();
  peer.ratio = node["ratio"].number();
  return peer;
}

Problem read_problem(const Node& node) {
  const Result<Problem> problem = parse_problem(node.text());
  if (!problem.ok()) node.fail("a problem string (" + problem.status().message() + ")");
  return *problem;
}

Row read_row(const Node& node) {
  Row row;
  row.problem = read_problem(node["problem"]);
  row.kernel = node["kernel"].text();
  const std::optional<Verified> verified = verified_from(node["verified"].text());
  if (!verified) node["verified"].fail("equal, within bound, failed or not asked");
  row.verified = *verified;
  if (node.has("checked")) row.checked = node["checked"].text();
  if (node.has("error")) {
    row.error = node["error"].text();
    if (row.error.empty()) node["error"].fail("a reason");
    return row;
  }
  row.us = {node["us"].number(), node["mad_us"].number(), node["calls"].whole()};
  if (row.us.median <= 0) node["us"].fail("a time above 0");
  row.block_mad = node["block_mad_us"].number();
  row.alternations = static_cast<int>(std::min<int64_t>(node["alternations"].whole(), 1 << 20));
  const std::optional<Peak> peak = peak_from(node["peak"].text());
  if (!peak) node["peak"].fail("int8, bf16 or none");
  row.work = {node["ops"].number(), node["bytes"].number(), *peak, node["from_memory"].truth(),
              row.problem.isa};
  row.work.memory_rate = node["memory_gbps"].number();
  row.work.memory_mad = node["memory_mad_gbps"].number();
  row.copies = node["copies"].whole();
  row.foreign = node["foreign_cpus"].number();
  row.peer = read_peer(node["peer"]);
  return row;
}

void read_head(const Node& root, Report* report) {
  if (!root.has("format") || root["format"].text() != kReportFormat) {
    throw UsageError(fmt::format("{}: is no result of quern-bench --json: \"format\" is not \"{}\"",
                                 root.path(), kReportFormat));
  }
  if (root["version"].whole() != kReportVersion) {
    root["version"].fail(
        fmt::format("{} (another version of quern-bench wrote it)", kReportVersion));
  }
  report->command = root["command"].text();
  report->started = root["started"].text();
  report->cpu = root["cpu"].text();
  report->level = root["level"].text();
  report->revision = root["revision"].text();
  const Node context = root["context"];
  for (const auto& entry : context.object().items()) {
    report->context.emplace_back(entry.key(), context[entry.key().c_str()].text());
  }
  report->peer_name = root["peer"]["name"].text();
  report->peer_isa = root["peer"]["isa"].text();
  const Node memory = root["memory"];
  report->memory = {static_cast<size_t>(memory["llc_bytes"].whole()),
                    static_cast<size_t>(memory["cache_bytes"].whole()),
                    static_cast<size_t>(memory["cold_bytes"].whole()),
                    memory["short_of_memory"].truth()};
}

}  // namespace

Report report_from_json(std::string_view text, const std::string& name) {
  Json json;
  try {
    json = Json::parse(text, [&name](int depth, Json::parse_event_t, Json&) {
      // A report is six deep. What is made of thousands of brackets would end the stack later.
      if (depth > 20) throw UsageError(name + ": is nested too deeply for a result of quern-bench");
      return true;
    });
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("{}: is not JSON, or was cut off: {}", name, e.what()));
  }
  const Node root(json, name);
  Report report;
  read_head(root, &report);
  report.roofs.cpus = root["cpus"].threads();
  root["roofs"].each([&](const Node& node) {
    const int threads = node["threads"].threads();
    report.roofs.of_threads[threads] = {read_roofs(node["before"], threads),
                                        read_roofs(node["after"], threads)};
  });
  root["limits"].each([&](const Node& node) { report.limits.push_back(read_limit(node)); });
  root["rows"].each([&](const Node& node) { report.rows.push_back(read_row(node)); });
  return report;
}

}  // namespace quern::bench
