#include "bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "bench/plan_text.h"

namespace quern::bench {
namespace {

std::string describe(const CheckResult& check) {
  if (check.compared == check.total) return fmt::format("all {} elements", check.total);
  return fmt::format("{} of {} elements", check.compared, check.total);
}

}  // namespace

Measurer::Measurer(const MeasureOptions& options, ContextSet* contexts, Peer* peer,
                   std::string no_peer, CaseFactory factory)
    : options_(options),
      contexts_(contexts),
      peer_(peer),
      no_peer_(std::move(no_peer)),
      factory_(std::move(factory)) {}

Row Measurer::measure(const Problem& problem) {
  Row row;
  row.problem = problem;
  try {
    const int threads = std::max(1, static_cast<int>(problem.threads));
    const std::unique_ptr<OpCase> op =
        factory_(problem, {contexts_->get(threads, problem.isa), options_.memory});
    row.kernel = kernel_name(op->explain(), problem.m);
    const IsaLevel ran = level_of_kernel(row.kernel);
    // A plan may take another family for few rows; the row is then one of that level.
    const bool for_few_rows = op->explain().find(fmt::format("  {}: chosen for m 1..",
                                                             to_string(ran))) != std::string::npos;
    if (problem.isa != IsaLevel::kNone && ran != problem.isa && !for_few_rows) {
      throw CaseError(fmt::format("isa:{} did not run because: {} (the plan chose {})",
                                  to_string(problem.isa), why_not(op->explain(), problem.isa),
                                  std::exchange(row.kernel, "")));
    }
    row.problem.isa = ran;
    row.work = op->work();
    row.work.level = ran;
    row.copies = op->copies();
    measure_case(op.get(), &row);
  } catch (const std::bad_alloc&) {
    row.error = "no memory for the operands";
  } catch (const std::exception& e) {
    row.error = e.what();
  }
  if (!row.error.empty()) row.us = Stats{};
  return row;
}

void Measurer::measure_case(OpCase* op, Row* row) {
  const Status first = op->run(0);
  if (!first.ok()) {
    row->error = first.message();
    return;
  }
  if (options_.verify && !verify(op, row)) return;
  const std::vector<std::byte> output(op->output().begin(), op->output().end());

  bool with_peer = false;
  if (peer_ == nullptr) {
    row->peer.note = no_peer_;
  } else {
    with_peer = peer_->setup(row->problem);
    row->peer.note = with_peer ? "" : peer_->note();
    row->peer.kernel = peer_->kernel();
    row->peer.isa_cap = peer_->isa_cap();
  }
  Row best = *row;
  for (int attempt = 0; attempt < options_.tries; ++attempt) {
    Row now = *row;
    if (!alternate(op, with_peer, &now)) {
      *row = now;
      return;
    }
    if (attempt == 0 || now.foreign < best.foreign) best = now;
    if (!best.disturbed()) break;
    if (with_peer && !now.peer.note.empty()) break;
  }
  *row = best;
  // Timed calls have the operands of the checked one: other bits mean a race or a broken copy.
  if (!std::equal(output.begin(), output.end(), op->output().begin())) {
    row->verified = Verified::kFailed;
    row->error = "a timed call left another result than the first call";
  }
}

bool Measurer::verify(OpCase* op, Row* row) const {
  const CheckResult check = op->check();
  row->checked = describe(check);
  row->verified = !check.ok     ? Verified::kFailed
                  : check.exact ? Verified::kEqual
                                : Verified::kWithinBound;
  if (!check.ok) row->error = "wrong result: " + check.detail;
  return check.ok;
}

bool Measurer::alternate(OpCase* op, bool with_peer, Row* row) {
  std::vector<double> calls, ours, theirs, ratios, memory;
  const bool reads_memory = row->work.from_memory && options_.memory_now;
  Status status;
  int64_t call = 1;
  const CpuUse begin = CpuUse::now(with_peer ? peer_->pid() : 0);
  for (int i = 0; i < options_.alternations; ++i) {
    if (reads_memory) memory.push_back(options_.memory_now(row->problem.threads));
    const std::vector<double> block = time_block(options_.budget, [&] {
      status = op->run(call++);
      return status.ok();
    });
    if (!status.ok()) {
      row->error = status.message();
      return false;
    }
    calls.insert(calls.end(), block.begin(), block.end());
    ours.push_back(median(block));
    if (!with_peer) continue;
    const std::optional<Stats> stats = peer_->block(options_.budget);
    if (!stats) {
      // Its times so far are gone with it; ours go on.
      row->peer.note = peer_->note();
      theirs.clear();
      ratios.clear();
      with_peer = false;
      continue;
    }
    theirs.push_back(stats->median);
    ratios.push_back(stats->median / ours.back());
  }
  row->foreign = foreign_cpus(begin, CpuUse::now(with_peer ? peer_->pid() : 0));
  row->alternations = options_.alternations;
  const Stats blocks = summarize(ours);
  const Stats rates = summarize(memory);
  row->work.memory_rate = rates.median;
  row->work.memory_mad = rates.mad;
  row->us = summarize(calls);
  row->us.median = blocks.median;
  row->block_mad = blocks.mad;
  row->peer.us = summarize(theirs);
  row->peer.ratio = median(ratios);
  return true;
}

}  // namespace quern::bench
