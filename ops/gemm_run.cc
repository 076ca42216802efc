// The loops around the micro-kernel:
//   for mc rows of A                     partial sums of one column block fit L2
//     for 16 nr columns of W             nr panels, kc deep: a chunk of weights, in L2 for these
//     rows
//       for kc of K                      mr rows of A, kc deep, stay in L1
//         for mr rows                    one kernel call
// While the rows of a chunk are multiplied, the next chunk is fetched: memory and the dot products
// work at the same time, which decides everything between M = 8 and M = 64.
#include <algorithm>

#include "jit/grouped_decode_avx512.h"
#include "jit/nvfp4_decode_avx512.h"
#include "ops/checked.h"
#include "ops/gemm_plan.h"

namespace quern::inline v0 {
namespace {

constexpr int64_t kPanelColumns = 16;
constexpr int64_t kVectorBytes = 64;

/// One thread's walk over the rows and panels of one piece.
class Walk {
 public:
  Walk(const GemmRun& run, GemmPieces* pieces, std::byte* partial) noexcept
      : run_(run),
        pieces_(*pieces),
        facts_(run.plan->family(run.m).facts),
        blocking_(run.plan->blocking(run.m)),
        kernels_(run.plan->kernels(run.m)),
        parts_(run.plan->spec().gate_up() ? 2 : 1),
        tiles_(partial),
        decoded_(partial + (facts_.tiles() ? jit::kTileScratchBytes : 0)),
        partial_(decoded_ + run.plan->decoded_bytes(run.m)) {}

  void piece(const GemmPiece& piece) noexcept {
    const Range& rows = rows_ = piece.rows;
    const Range& panels = panels_ = piece.panels;
    // In parts that differ by little: a short last part would read all weights for a few rows.
    mc_ = rows.size() <= 0 ? 1 : ceil_div(rows.size(), ceil_div(rows.size(), blocking_.mc));
    mc_ = ceil_div(mc_, facts_.row_step) * facts_.row_step;
    Chunk chunk;
    chunk.rows = {rows.begin, std::min(rows.begin + mc_, rows.end)};
    chunk.panels = {panels.begin, std::min(panels.begin + blocking_.nr, panels.end)};
    chunk.depth = {0, std::min(kc(), run_.k)};
    if (chunk.rows.size() <= 0 || chunk.panels.size() <= 0) return;
    while (true) {
      Chunk next = chunk;
      const bool last = !advance(&next);
      multiply(chunk, last ? piece.next : weights(next), last && piece.last);
      if (last) return;
      chunk = next;
    }
  }

 private:
  /// Weights that are multiplied with mc rows before the walk moves on.
  struct Chunk {
    Range rows;
    Range panels;
    Range depth;
  };

  int64_t kc() const noexcept {
    return blocking_.kc == 0 ? std::max<int64_t>(run_.k, 1) : blocking_.kc;
  }

  /// To the chunk after this one; false at the end.
  bool advance(Chunk* c) const noexcept {
    const auto step = [](Range* r, int64_t by, const Range& all) {
      r->begin = r->end;
      const bool more = r->begin < all.end;
      if (!more) r->begin = all.begin;
      r->end = std::min(r->begin + by, all.end);
      return more;
    };
    return step(&c->depth, kc(), {0, run_.k}) || step(&c->panels, blocking_.nr, panels_) ||
           step(&c->rows, mc_, rows_);
  }

  const std::byte* weights(const Chunk& c) const noexcept {
    return run_.panels + c.panels.begin * run_.panel_bytes + facts_.packed_bytes(c.depth.begin);
  }

  /// `next`: the weights that the thread multiplies after these, or null. `last`: nothing follows.
  void multiply(const Chunk& chunk, const std::byte* next, bool last) noexcept {
    if (facts_.decodes()) decode(chunk);
    const int64_t blocks = ceil_div(chunk.rows.size(), blocking_.mr);
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t block = pieces_.backwards ? blocks - 1 - i : i;
      const Range r = row_block(chunk.rows.size(), blocking_.mr, facts_.row_step, block);
      const Range rows{chunk.rows.begin + r.begin, chunk.rows.begin + r.end};
      jit::GemmArgs args = operands(rows, r.begin, chunk);
      if (facts_.tiles()) use_tiles(&args, chunk.panels.size(), last && i + 1 == blocks);
      if (facts_.decodes()) read_decoded(&args, chunk);
      if (blocks == 1 && !facts_.decodes()) {
        fetch_stream(&args, next);
      } else {
        fetch_piece(&args, next, i);
      }
      kernels_.at(static_cast<int>(rows.size()), static_cast<int>(chunk.panels.size())).call(args);
    }
    // Tiles stay configured for the block that came last, which then comes first.
    pieces_.backwards = facts_.tiles() && !pieces_.backwards;
  }

  /// The chunk's weights in the form that the kernel reads, once for all rows.
  void decode(const Chunk& chunk) noexcept {
    if (facts_.block != 0) return decode_blocks(chunk);
    jit::GroupedDecodeArgs args;
    args.b = weights(chunk);
    args.panel_stride = run_.panel_bytes;
    args.panels = chunk.panels.size();
    args.groups = chunk.depth.size() / facts_.group;
    args.group_lines = facts_.packed_bytes(facts_.group) / kVectorBytes;
    args.zero = group_values(run_.groups.zero, run_.groups.zero_bytes, chunk);
    args.zero_stride = run_.groups.count * run_.groups.zero_bytes;
    args.to = decoded_;
    args.to_stride = facts_.read_bytes(chunk.depth.size());
    args.ahead = blocking_.prefetch_bytes;
    if (args.groups > 0) run_.plan->family(run_.m).decode->call(args);
  }
  void decode_blocks(const Chunk& chunk) noexcept {
    const int64_t depth = facts_.decoded_depth(chunk.depth.size());
    jit::Nvfp4DecodeArgs args;
    args.b = weights(chunk);
    args.panel_stride = run_.panel_bytes;
    args.panels = chunk.panels.size();
    args.blocks = depth / facts_.block;
    args.scale = block_scales(chunk);
    args.scale_stride = run_.block_scale_stride;
    args.to = decoded_;
    args.to_stride = facts_.read_bytes(depth);
    args.ahead = blocking_.prefetch_bytes;
    if (args.blocks > 0) run_.plan->family(run_.m).decode->call(args);
  }
  void read_decoded(jit::GemmArgs* args, const Chunk& chunk) const noexcept {
    args->b = decoded_;
    args->panel_stride = facts_.read_bytes(facts_.decoded_depth(chunk.depth.size()));
  }

  /// Of the chunk's first panel and block.
  const std::byte* block_scales(const Chunk& chunk) const noexcept {
    return run_.block_scale + chunk.panels.begin * run_.block_scale_stride +
           chunk.depth.begin / facts_.block * kPanelColumns;
  }

  /// Of the chunk's first panel and group, 16 values of `bytes` together.
  const std::byte* group_values(const std::byte* all, int64_t bytes,
                                const Chunk& chunk) const noexcept {
    if (all == nullptr) return nullptr;
    return all +
           (chunk.panels.begin * run_.groups.count + chunk.depth.begin / facts_.group) * bytes;
  }

  /// A configuration is loaded where the last block's does not do, and given up after the last one.
  void use_tiles(jit::GemmArgs* args, int64_t panels, bool last) noexcept {
    args->tiles = tiles_;
    int64_t& configured = pieces_.configured_rows;
    args->configure =
        !jit::serves_tiles(configured, args->m, static_cast<int>(panels), facts_.tile_bytes);
    args->release = last;
    if (args->configure) configured = args->m;
  }

  /// One row block: each panel is fetched a fixed distance ahead of where it is read, at its end
  /// already the panel that comes next.
  void fetch_stream(jit::GemmArgs* args, const std::byte* next) const noexcept {
    const auto* b = static_cast<const std::byte*>(args->b);
    const int64_t ahead = blocking_.prefetch_bytes;
    const int64_t bytes = facts_.packed_bytes(args->k);
    const int64_t unit = facts_.group == 0 ? 4 : facts_.group_steps;
    args->prefetch = b + ahead;
    args->prefetch_steps = std::max<int64_t>(bytes - ahead, 0) / kVectorBytes / unit * unit;
    args->prefetch_next = next == nullptr ? b : next;
    // Panels shorter than the distance: what comes after the next one is known where they follow
    // each other.
    if (ahead > bytes && next == b + bytes) args->prefetch_next = b + ahead;
  }

  /// Several row blocks: the next chunk is dealt out to them in pieces as long as a call can fetch.
  /// A block without a piece fetches what it is reading, which costs next to nothing.
  void fetch_piece(jit::GemmArgs* args, const std::byte* next, int64_t block) const noexcept {
    args->prefetch_steps = 0;
    args->prefetch_next = args->b;
    if (next == nullptr || kernels_.prefetch == 0) return;
    const int64_t pieces_of_panel =
        std::max<int64_t>(facts_.packed_lines_of_a_turn() / kernels_.prefetch, 1);
    const int64_t panel = block / pieces_of_panel;
    if (panel >= blocking_.nr) return;
    args->prefetch_next =
        next + panel * run_.panel_bytes +
        block % pieces_of_panel * (facts_.packed_bytes(args->k) / pieces_of_panel);
  }

  jit::GemmArgs operands(Range rows, int64_t row_in_chunk, const Chunk& chunk) const noexcept {
    const GemmSpec& spec = run_.plan->spec();
    const Range& depth = chunk.depth;
    const Range& panels = chunk.panels;
    const int64_t column = panels.begin / parts_ * kPanelColumns;
    const int64_t partial_row = blocking_.nr * kVectorBytes * (facts_.wide ? 2 : 1);
    jit::GemmArgs args;
    args.a = run_.a + rows.begin * run_.a_stride + depth.begin * facts_.a_bytes;
    args.a_stride = run_.a_stride;
    args.b = weights(chunk);
    args.panel_stride = run_.panel_bytes;
    args.m = rows.size();
    args.k = depth.size();
    args.control = control_;
    // Sums that end with this call need no place of their own.
    args.acc = partial_ + (depth.size() == run_.k ? 0 : row_in_chunk * partial_row);
    args.first = depth.begin == 0;
    args.last = depth.end == run_.k;
    args.c = run_.c + rows.begin * run_.c_stride + column * run_.c_bytes;
    args.c_stride = run_.c_stride;
    args.n = std::min(panels.size() / parts_ * kPanelColumns, spec.problem.n - column);
    if (run_.row_scale != nullptr) args.row_scale = run_.row_scale + rows.begin;
    if (run_.row_sum != nullptr) args.row_sum = run_.row_sum + rows.begin;
    if (facts_.group != 0) use_groups(&args, rows, chunk);
    if (facts_.block != 0) {
      args.scale = block_scales(chunk);
      args.scale_stride = run_.block_scale_stride;
    }
    if (run_.col_scale != nullptr) {
      args.col_scale = run_.col_scale + panels.begin * kPanelColumns;
    }
    if (run_.bias != nullptr) {
      args.bias = run_.bias + column;
      args.bias_up = args.bias + spec.problem.n;
    }
    if (run_.residual != nullptr) {
      args.residual = run_.residual + rows.begin * run_.residual_stride + column * run_.c_bytes;
      args.residual_stride = run_.residual_stride;
    }
    return args;
  }

  void use_groups(jit::GemmArgs* args, Range rows, const Chunk& chunk) const noexcept {
    const GemmGroups& groups = run_.groups;
    args->groups = chunk.depth.size() / facts_.group;
    args->group_steps = facts_.group_steps;
    args->scale = group_values(groups.scale, groups.scale_bytes, chunk);
    args->scale_stride = groups.count * groups.scale_bytes;
    args->zero = group_values(groups.zero, groups.zero_bytes, chunk);
    args->zero_stride = groups.count * groups.zero_bytes;
    if (groups.sum == nullptr) return;
    args->group_sum =
        groups.sum + chunk.depth.begin / facts_.group * groups.sum_stride + rows.begin * 4;
    args->group_sum_stride = groups.sum_stride;
  }

  const GemmRun& run_;
  GemmPieces& pieces_;
  const GemmFacts& facts_;
  const GemmBlocking& blocking_;
  const KernelSet& kernels_;
  const int64_t parts_;
  std::byte* const tiles_;
  std::byte* const decoded_;
  std::byte* const partial_;
  mutable uint32_t control_[2] = {};
  Range rows_;
  Range panels_;
  int64_t mc_ = 1;
};

}  // namespace

int64_t column_units(const GemmPlan& plan) noexcept {
  return ceil_div(plan.spec().problem.n, kPanelColumns);
}

void run_gemm_piece(const GemmRun& run, const GemmPiece& piece, GemmPieces* pieces,
                    std::byte* partial) noexcept {
  Walk(run, pieces, partial).piece(piece);
}

void run_gemm_part(const GemmRun& run, int tid, std::byte* partial) noexcept {
  if (tid >= run.grid.m_parts * run.grid.n_parts) return;
  const int64_t parts = run.plan->spec().gate_up() ? 2 : 1;
  const Range rows = split_steps(run.m, run.plan->family(run.m).facts.row_step, run.grid.m_parts,
                                 tid / run.grid.n_parts);
  const Range units =
      split_range(column_units(*run.plan), run.grid.n_parts, tid % run.grid.n_parts);
  GemmPieces pieces;
  run_gemm_piece(run, {.rows = rows, .panels = {units.begin * parts, units.end * parts}}, &pieces,
                 partial);
}

}  // namespace quern::inline v0
