#include "bench/session.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

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

int threads_of(const Problem& p) {
  return std::max(1, static_cast<int>(p.threads));
}

}  // namespace

Session::Session(const Options& options) : options_(options) {
  no_peer_ = start_peer();
  contexts_ = std::make_unique<ContextSet>();
  measurer_ = std::make_unique<Measurer>(options_.measure, contexts_.get(), peer_.get(), no_peer_);
  report_.context = host_info(*contexts_);
  if (peer_) report_.peer_name = peer_->name();
  report_.context.emplace_back("peer", peer_ ? peer_->name() : no_peer_);
}

std::string Session::start_peer() {
  if (!options_.peer) return "none asked for";
  if (!onednn_built()) return "oneDNN: not built";
  PeerProcess::Command command;
  command.argv = {own_path(), "--peer-child", "onednn"};
  const std::vector<int32_t>& t = options_.threads;
  const int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  command.environment = peer_environment(t.empty() ? cpus : *std::max_element(t.begin(), t.end()));
  peer_ = std::make_unique<PeerProcess>(std::move(command));
  if (peer_->pid() > 0) return "";
  const std::string why = peer_->note();
  peer_.reset();
  return why;
}

const Row& Session::measure(const Problem& problem) {
  const int threads = threads_of(problem);
  if (report_.roofs.find(threads) == report_.roofs.end()) {
    if (!meter_) meter_ = std::make_unique<RoofMeter>(contexts_->plain().isa_report());
    report_.roofs[threads].before = meter_->measure(threads);
  }
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
  const auto found = report_.roofs.find(threads_of(problem));
  return found == report_.roofs.end() ? Roofs{} : found->second.before;
}

void Session::finish() {
  for (auto& [threads, pair] : report_.roofs) pair.after = meter_->measure(threads);
}

bool Session::passed() const {
  return std::none_of(report_.rows.begin(), report_.rows.end(),
                      [](const Row& row) { return !row.error.empty(); });
}

}  // namespace quern::bench
