#include "bench/session.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "bench/host_info.h"
#include "bench/peer_child.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  return text;
}

std::string peer_line(const std::string& name, PeerIsa isa) {
  if (isa == PeerIsa::kBest) return name + ", may use everything this CPU has (--peer-isa best)";
  return fmt::format(
      "{}, capped to the level of the row (avx512: DNNL_MAX_CPU_ISA={}, amx: no cap)", name,
      onednn_isa_cap(isa, IsaLevel::kAvx512));
}

}  // namespace

Session::Session(const Options& options) : options_(options) {
  options_.measure.memory = plan_memory();
  options_.measure.memory_now = [this](int threads) {
    return meter_ ? meter_->memory_now(report_.roofs.key(threads)) : 0;
  };
  no_peer_ = start_peer();
  contexts_ = std::make_unique<ContextSet>();
  measurer_ = std::make_unique<Measurer>(options_.measure, contexts_.get(), peer_.get(), no_peer_);
  if (!options_.limits.empty()) limits_.emplace(options_.limits);
  report_.command = options_.command;
  report_.started = utc_now();
  report_.cpu = contexts_->plain().isa_report().cpu;
  report_.level = to_string(contexts_->plain().isa());
  report_.revision = revision();
  report_.memory = options_.measure.memory;
  report_.roofs.cpus = contexts_->cpu_count();
  report_.context = host_info(*contexts_);
  report_.context.emplace_back("memory", describe(report_.memory));
  if (peer_) report_.peer_name = peer_->name();
  report_.peer_isa = options_.peer_isa == PeerIsa::kRow ? "row" : "best";
  report_.context.emplace_back("peer",
                               peer_ ? peer_line(peer_->name(), options_.peer_isa) : no_peer_);
  report_.context.emplace_back("command", report_.command);
}

std::string Session::start_peer() {
  if (!options_.peer) return "none asked for";
  if (!onednn_built()) return "oneDNN: not built";
  PeerProcess::Command command;
  command.argv = {own_path(), "--peer-child", "onednn"};
  const std::vector<int32_t>& t = options_.threads;
  const int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  command.environment = peer_environment(t.empty() ? cpus : *std::max_element(t.begin(), t.end()));
  command.isa = options_.peer_isa;
  command.cold_bytes = options_.measure.memory.cold_bytes;
  peer_ = std::make_unique<PeerProcess>(std::move(command));
  if (peer_->pid() > 0) return "";
  const std::string why = peer_->note();
  peer_.reset();
  return why;
}

void Session::announce(const std::vector<Problem>& problems) {
  for (const Problem& p : problems) report_.roofs.of_threads[report_.roofs.key(p.threads)];
}

void Session::measure_roofs(bool after) {
  if (!meter_) {
    meter_ = std::make_unique<RoofMeter>(contexts_->plain().isa_report(),
                                         options_.measure.memory.cold_bytes);
  }
  for (auto& [threads, pair] : report_.roofs.of_threads) {
    (after ? pair.after : pair.before) = meter_->measure(threads);
  }
  if (!limits_) return;
  // Next to the roofs, so that both see the same machine.
  for (LimitCheck& check : compare_limits(limits_->read(), report_.roofs, after)) {
    report_.limits.push_back(std::move(check));
  }
  if (report_.limits.empty()) {
    throw UsageError("--limits " + options_.limits +
                     ": has no limit for the thread counts of this run");
  }
}

const Row& Session::measure(const Problem& problem) {
  if (!meter_) measure_roofs(false);
  report_.rows.push_back(measurer_->measure(problem));
  const Row& row = report_.rows.back();
  if (!row.error.empty()) {
    fmt::print(stderr, "{}: {}\n", to_string(problem), row.error);
  } else {
    const Floor floor = floor_of(row.work, roofs_before(problem));
    fmt::print(stderr, "{}: {} us, {:.0f} % {}{}{}\n", to_string(problem),
               format_number(row.us.median), percent_of(floor, row.us.median), floor.bound,
               row.peer.us.count > 0 ? fmt::format(", ratio {:.2f}", row.peer.ratio) : "",
               row.disturbed() ? ", disturbed" : "");
  }
  return row;
}

Roofs Session::roofs_before(const Problem& problem) const {
  const auto found = report_.roofs.of_threads.find(report_.roofs.key(problem.threads));
  return found == report_.roofs.of_threads.end() ? Roofs{} : found->second.before;
}

void Session::finish() {
  if (meter_) measure_roofs(true);
}

bool Session::passed() const {
  return std::all_of(report_.rows.begin(), report_.rows.end(),
                     [](const Row& row) { return row.error.empty(); }) &&
         std::all_of(report_.limits.begin(), report_.limits.end(),
                     [](const LimitCheck& check) { return check.agrees(); });
}

}  // namespace quern::bench
