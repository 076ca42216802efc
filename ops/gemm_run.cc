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
        parts_log2_(run.plan->spec().gate_up() ? 1 : 0),
        tiles_(partial),
        decoded_(partial + (facts_.tiles() ? jit::kTileScratchBytes : 0)),
        partial_(decoded_ + run.plan->decoded_bytes(run.m)) {
    use_run();
  }

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
    cut(chunk.rows);
    while (true) {
      const bool last = is_last(chunk);
      multiply(chunk, last ? piece.next : after(chunk), last && piece.last);
      if (last) return;
      advance(&chunk);
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

  void cut(const Range& rows) noexcept {
    row_blocks_ = RowBlocks(rows.size(), blocking_.mr, facts_.row_step);
  }

  // Depth first, then panels, then rows. A chunk is never copied: whole vectors read behind its
  // parts' writes would have to wait until the kernel before has retired.

  bool is_last(const Chunk& c) const noexcept {
    return c.depth.end == run_.k && c.panels.end == panels_.end && c.rows.end == rows_.end;
  }

  /// The weights of the chunk after one that is not the last.
  const std::byte* after(const Chunk& c) const noexcept {
    if (c.depth.end < run_.k) return weights(c.panels.begin, c.depth.end);
    return weights(c.panels.end < panels_.end ? c.panels.end : panels_.begin, 0);
  }

  void advance(Chunk* c) noexcept {
    const auto step = [](Range* r, int64_t by, const Range& all) {
      r->begin = r->end;
      const bool more = r->begin < all.end;
      if (!more) r->begin = all.begin;
      r->end = std::min(r->begin + by, all.end);
      return more;
    };
    if (step(&c->depth, kc(), {0, run_.k}) || step(&c->panels, blocking_.nr, panels_)) return;
    step(&c->rows, mc_, rows_);
    cut(c->rows);
  }

  const std::byte* weights(int64_t panel, int64_t depth) const noexcept {
    return run_.panels + panel * run_.panel_bytes + facts_.packed_bytes(depth);
  }
  const std::byte* weights(const Chunk& c) const noexcept {
    return weights(c.panels.begin, c.depth.begin);
  }

  /// `next`: the weights that the thread multiplies after these, or null. `last`: nothing follows.
  void multiply(const Chunk& chunk, const std::byte* next, bool last) noexcept {
    if (facts_.decodes()) decode(chunk);
    use_chunk(chunk);
    const int64_t blocks = row_blocks_.count();
    const int64_t span = fetched_together();
    int64_t together = 1;  // blocks of one call
    for (int64_t i = 0; i < blocks; i += together) {
      const int64_t block = pieces_.backwards ? blocks - 1 - i : i;
      const Range r = row_blocks_.at(block);
      const Range rows{chunk.rows.begin + r.begin, chunk.rows.begin + r.end};
      use_rows(rows, r.begin, chunk);
      if (facts_.tiles()) use_tiles(chunk.panels.size(), last && i + 1 == blocks);
      if (blocks == 1 && !facts_.decodes()) {
        fetch_stream(next);
      } else {
        fetch_piece(next, i);
      }
      together = std::min(row_blocks_.alike(block), span - i % span);
      args_.blocks = together;
      kernels_.at(static_cast<int>(rows.size()), static_cast<int>(chunk.panels.size())).call(args_);
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
  void use_tiles(int64_t panels, bool last) noexcept {
    int64_t& configured = pieces_.configured_rows;
    args_.configure =
        !jit::serves_tiles(configured, args_.m, static_cast<int>(panels), facts_.tile_bytes);
    args_.release = last;
    if (args_.configure) configured = args_.m;
  }

  /// What is fetched behind `bytes` that this call, or this chunk, reads: what comes next, or where
  /// these follow each other, and are shorter than the distance, what lies so far ahead.
  const std::byte* following(const std::byte* next, int64_t bytes, int64_t ahead) const noexcept {
    const auto* b = static_cast<const std::byte*>(args_.b);
    if (next == nullptr) return b;
    return ahead > bytes && next == b + bytes ? b + ahead : next;
  }

  /// One row block: each panel is fetched a fixed distance ahead of where it is read, at its end
  /// already the panel that comes next.
  void fetch_stream(const std::byte* next) noexcept {
    const int64_t ahead = blocking_.prefetch_bytes;
    const int64_t bytes = facts_.packed_bytes(args_.k);
    args_.prefetch = static_cast<const std::byte*>(args_.b) + ahead;
    args_.prefetch_steps = 0;
    if (bytes > ahead) {
      const int64_t unit = facts_.group == 0 ? 4 : facts_.group_steps;
      args_.prefetch_steps = (bytes - ahead) / kVectorBytes / unit * unit;
    }
    args_.prefetch_next = following(next, bytes, ahead);
  }

  /// Several row blocks: the next chunk is dealt out to them in pieces as long as a block can
  /// fetch. A block without a piece fetches what it is reading, which costs next to nothing.
  void fetch_piece(const std::byte* next, int64_t block) noexcept {
    args_.prefetch_steps = 0;
    args_.prefetch_next = args_.b;
    const int64_t pieces = pieces_of_panel_;
    if (next == nullptr || block >= pieces * blocking_.nr) return;
    const int64_t bytes = facts_.packed_bytes(args_.k);
    args_.prefetch_next =
        following(next, bytes * blocking_.nr, blocking_.prefetch_bytes * int64_t{blocking_.nr}) +
        block / pieces * run_.panel_bytes + block % pieces * (bytes / pieces);
  }

  /// Blocks whose pieces lie one behind the other.
  int64_t fetched_together() const noexcept {
    if (pieces_of_panel_ == 0) return row_blocks_.count();
    const bool whole_panels = facts_.packed_bytes(args_.k) == run_.panel_bytes;
    return whole_panels ? pieces_of_panel_ * blocking_.nr : pieces_of_panel_;
  }

  // The arguments stay from call to call, and only what changes is written: zeroing them all takes
  // as long as a tenth of a short call (bench/NOTES.md).

  /// What all calls of the walk have in common.
  void use_run() noexcept {
    args_.a_stride = run_.a_stride;
    args_.c_stride = run_.c_stride;
    args_.residual_stride = run_.residual_stride;
    args_.control = control_;
    args_.tiles = tiles_;
    args_.group_steps = facts_.group_steps;
    args_.scale_stride =
        facts_.block != 0 ? run_.block_scale_stride : run_.groups.count * run_.groups.scale_bytes;
    args_.zero_stride = run_.groups.count * run_.groups.zero_bytes;
    args_.group_sum_stride = run_.groups.sum_stride;
    if (kernels_.prefetch != 0) {
      pieces_of_panel_ = std::max<int64_t>(facts_.packed_lines_of_a_turn() / kernels_.prefetch, 1);
    }
  }

  /// And those of a chunk.
  void use_chunk(const Chunk& chunk) noexcept {
    const Range& depth = chunk.depth;
    const Range& panels = chunk.panels;
    const int64_t n = run_.plan->spec().problem.n;
    const int64_t column = (panels.begin >> parts_log2_) * kPanelColumns;
    args_.b = facts_.decodes() ? decoded_ : weights(chunk);
    args_.panel_stride =
        facts_.decodes() ? facts_.read_bytes(facts_.decoded_depth(depth.size())) : run_.panel_bytes;
    args_.k = depth.size();
    args_.first = depth.begin == 0;
    args_.last = depth.end == run_.k;
    args_.n = std::min((panels.size() >> parts_log2_) * kPanelColumns, n - column);
    first_c_ = run_.c + column * run_.c_bytes;
    if (run_.col_scale != nullptr) {
      args_.col_scale = run_.col_scale + panels.begin * kPanelColumns;
    }
    if (run_.bias != nullptr) {
      args_.bias = run_.bias + column;
      args_.bias_up = args_.bias + n;
    }
    if (run_.residual != nullptr) first_residual_ = run_.residual + column * run_.c_bytes;
    if (facts_.block != 0) args_.scale = block_scales(chunk);
    if (facts_.group != 0) {
      args_.groups = depth.size() / facts_.group;
      args_.scale = group_values(run_.groups.scale, run_.groups.scale_bytes, chunk);
      args_.zero = group_values(run_.groups.zero, run_.groups.zero_bytes, chunk);
    }
  }

  /// And what one of them has for itself.
  void use_rows(Range rows, int64_t row_in_chunk, const Chunk& chunk) noexcept {
    const Range& depth = chunk.depth;
    args_.a = run_.a + rows.begin * run_.a_stride + depth.begin * facts_.a_bytes;
    args_.m = rows.size();
    // Sums that end with this call need no place of their own.
    const int64_t partial_row =
        depth.size() == run_.k ? 0 : blocking_.nr * kVectorBytes * (facts_.wide ? 2 : 1);
    args_.acc = partial_ + row_in_chunk * partial_row;
    args_.acc_step = rows.size() * partial_row;
    args_.c = first_c_ + rows.begin * run_.c_stride;
    if (run_.residual != nullptr) {
      args_.residual = first_residual_ + rows.begin * run_.residual_stride;
    }
    if (run_.row_scale != nullptr) args_.row_scale = run_.row_scale + rows.begin;
    if (run_.row_sum != nullptr) args_.row_sum = run_.row_sum + rows.begin;
    if (run_.groups.sum != nullptr) {
      args_.group_sum =
          run_.groups.sum + rows.begin * 4 + depth.begin / facts_.group * run_.groups.sum_stride;
    }
  }

  const GemmRun& run_;
  GemmPieces& pieces_;
  const GemmFacts& facts_;
  const GemmBlocking& blocking_;
  const KernelSet& kernels_;
  const int parts_log2_;  ///< panels of a column unit
  std::byte* const tiles_;
  std::byte* const decoded_;
  std::byte* const partial_;
  uint32_t control_[2] = {};
  jit::GemmArgs args_;                         ///< of the next call
  const std::byte* first_residual_ = nullptr;  ///< the chunk's columns of the first row
  std::byte* first_c_ = nullptr;
  Range rows_;
  Range panels_;
  int64_t mc_ = 1;
  RowBlocks row_blocks_;         ///< of the chunk
  int64_t pieces_of_panel_ = 0;  ///< that calls can fetch; 0: none do
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
