#include "ops/gemm_plan.h"

#include <algorithm>
#include <utility>

#include "ops/checked.h"

namespace quern::inline v0 {
namespace {

constexpr int64_t kVectorBytes = 64;

bool cuts_k(const GemmBlocking& b, const GemmFacts& facts) noexcept {
  return b.kc != 0 && b.kc < facts.k;
}

/// Lines a turn that the micro-kernel fetches ahead. One row block streams what it is about to
/// read. Several share the next chunk of weights, which each of them could fetch in 4 * nr lines a
/// turn: as few as cover it, because the fewer the lines, the less they get in the way.
int prefetch_lines(const GemmBlocking& b, const GemmFacts& facts, int64_t m) noexcept {
  if (b.prefetch_bytes == 0) return 0;
  const int64_t whole = facts.packed_lines_of_a_turn() * b.nr;
  const int64_t blocks = ceil_div(std::min(m, b.mc), b.mr);
  if (facts.decodes() && facts.tiles() && b.nr > 2) return 0;
  if (blocks == 1 && !facts.decodes()) return static_cast<int>(whole);
  if (blocks >= whole) return 1;
  return blocks * 2 >= whole || facts.decodes() ? 2 : 4;
}

std::string describe(const GemmBlocking& b) {
  return "mr " + std::to_string(b.mr) + ", nr " + std::to_string(b.nr) + ", mc " +
         std::to_string(b.mc) + ", kc " + (b.kc == 0 ? "all" : std::to_string(b.kc)) +
         ", prefetch " + std::to_string(b.prefetch_bytes);
}

}  // namespace

Result<GemmPlan> GemmPlan::create(ContextImpl& ctx, GemmSpec spec) {
  GemmPlan plan;
  plan.spec_ = std::move(spec);
  for (GemmFamily& f : plan.spec_.families) {
    f.facts.pairs = plan.spec_.gate_up();
    if (!f.facts.decodes()) continue;
    auto decode = ctx.kernel(f.decode_name, f.generate_decode);
    if (!decode.ok()) return decode.status();
    f.decode = std::move(*decode);
  }
  for (int i = 0; i < kMBuckets; ++i) {
    if (const Status status = plan.fill_bucket(ctx, i); !status.ok()) return status;
  }
  return plan;
}

Status GemmPlan::fill_bucket(ContextImpl& ctx, int index) {
  Bucket& bucket = buckets_[static_cast<size_t>(index)];
  const int64_t m = bucket_m(index);
  const GemmFamily& family = spec_.families[family_of(m)];
  bucket.blocking = spec_.blocking(family.facts, m);
  bucket.source = "compiled-in defaults";
  if (const TuningSource* tuning = ctx.options.tuning) {
    Problem problem = spec_.problem;
    problem.m = m;
    problem.isa = family.level;
    GemmBlocking tuned;
    if (tuning->lookup(problem, &tuned)) {
      bucket.refused = invalid(tuned, family.facts);
      if (bucket.refused == nullptr) {
        bucket.blocking = tuned;
        bucket.source = tuning->name();
      }
    }
  }
  const auto set = kernel_set(ctx, family_of(m), bucket.blocking,
                              prefetch_lines(bucket.blocking, family.facts, m));
  if (!set.ok()) return set.status();
  bucket.set = *set;
  return {};
}

Result<size_t> GemmPlan::kernel_set(ContextImpl& ctx, size_t family_index, const GemmBlocking& b,
                                    int prefetch) {
  const GemmFamily& family = spec_.families[family_index];
  for (size_t i = 0; i < sets_.size(); ++i) {
    const KernelSet& s = sets_[i];
    if (s.family == family_index && s.mr == b.mr && s.nr == b.nr && s.prefetch == prefetch) {
      return i;
    }
  }
  const int step = family.facts.row_step;
  KernelSet set{family_index, step, b.mr, b.nr, prefetch, {}};
  for (int mr = step; mr <= b.mr; mr += step) {
    for (int nr = 1; nr <= b.nr; ++nr) {
      if (spec_.gate_up() && nr % 2 != 0) {  // gate and up come in pairs, so no block is this wide
        set.kernels.push_back(nullptr);
        continue;
      }
      const bool streams = prefetch == 4 * b.nr && !family.facts.decodes();
      const int lines = streams ? 4 * nr : prefetch;
      auto kernel = ctx.kernel(family.kernel_name(mr, nr, lines),
                               [&] { return family.generate(mr, nr, lines); });
      if (!kernel.ok()) return kernel.status();
      set.kernels.push_back(std::move(*kernel));
    }
  }
  sets_.push_back(std::move(set));
  return sets_.size() - 1;
}

const GemmBlocking& GemmPlan::blocking(int64_t m) const noexcept {
  return buckets_[static_cast<size_t>(m_bucket(m))].blocking;
}

const KernelSet& GemmPlan::kernels(int64_t m) const noexcept {
  return sets_[buckets_[static_cast<size_t>(m_bucket(m))].set];
}

int64_t GemmPlan::partial_bytes(int64_t max_m) const noexcept {
  int64_t most = 0;
  for (int i = 0; i <= m_bucket(max_m); ++i) {
    const GemmBlocking& b = buckets_[static_cast<size_t>(i)].blocking;
    const GemmFacts& facts = family(bucket_m(i)).facts;
    int64_t bytes = facts.tiles() ? jit::kTileScratchBytes : 0;
    bytes += decoded_bytes(bucket_m(i));
    const int64_t row_bytes = b.nr * kVectorBytes * (facts.wide ? 2 : 1);
    if (cuts_k(b, facts)) {
      bytes += std::min(b.mc, max_m) * row_bytes;
    } else if (facts.group != 0) {  // sums over groups, of the block that is under way
      bytes += b.mr * row_bytes;
    }
    most = std::max(most, bytes);
  }
  return most;
}

int64_t GemmPlan::decoded_bytes(int64_t m) const noexcept {
  const GemmFacts& facts = family(m).facts;
  if (!facts.decodes()) return 0;
  const GemmBlocking& b = blocking(m);
  return b.nr * facts.read_bytes(facts.decoded_depth(cuts_k(b, facts) ? b.kc : facts.k));
}

std::string GemmPlan::explain() const {
  std::string text;
  for (const KernelSet& set : sets_) {
    text += "  kernel " + set.kernels.back()->name + " and its tails\n";
  }
  for (int first = 0, i = 0; i < kMBuckets; ++i) {
    const auto same = [&](int other) {
      const Bucket& x = buckets_[static_cast<size_t>(first)];
      const Bucket& y = buckets_[static_cast<size_t>(other)];
      return describe(x.blocking) == describe(y.blocking) && x.set == y.set &&
             x.source == y.source && x.refused == y.refused;
    };
    if (i + 1 < kMBuckets && same(i + 1)) continue;
    const Bucket& bucket = buckets_[static_cast<size_t>(first)];
    const int64_t from = first == 0 ? 1 : bucket_m(first - 1) + 1;
    text += "  m " + std::to_string(from) + "..";
    if (i + 1 < kMBuckets) text += std::to_string(bucket_m(i));
    text += ": " + describe(bucket.blocking) + ", kernel " +
            sets_[bucket.set].kernels.back()->name + " (" + bucket.source + ")\n";
    if (bucket.refused != nullptr) {
      text += "    tuning entry refused: " + std::string(bucket.refused) + '\n';
    }
    first = i + 1;
  }
  return text;
}

}  // namespace quern::inline v0
