#include "ops/bmm_run.h"

#include <algorithm>

#include "ops/checked.h"
#include "ops/mxcsr.h"
#include "ops/packed_weights_builder.h"
#include "ops/prepared_rows.h"

namespace quern::inline v0 {
namespace {

// Rows that are prepared together: no more than pass over a chunk of weights together anyway, so
// that a further part costs no further pass over B.
constexpr int64_t kMostPreparedRows = kMostRowsAtOnce;
// Panels of a plain B that are packed together. They are multiplied at once and should be in L2
// still, where rows of A and the source of the next ones want to be too.
constexpr int64_t kPackedAtOnce = 256 << 10;

int64_t lines_up(int64_t bytes) noexcept {
  return ceil_div(bytes, 64) * 64;
}

int64_t bytes_of_panel(const GemmFacts& facts) noexcept {
  const int64_t tile = kLinesOfATile * static_cast<int64_t>(kLineBytes);
  return ceil_div(facts.packed_bytes(facts.k), tile) * tile;
}

// Tiles: that many rows a multiple of this apart push each other out of L2 before the next columns
// read them again. With as many columns as this the copy is paid for: 1.15 to 1.45 of the speed,
// where fewer rows or columns lose up to 15 % (bench/NOTES.md).
constexpr int64_t kFewestSpreadTileRows = 256;
constexpr int64_t kFewestSpreadTileColumns = 512;
constexpr int64_t kMeetInL2 = 8192;
// Copied together, they should still be in L2 when they are multiplied, beside the weights.
constexpr int64_t kSpreadAtOnce = 128 << 10;
constexpr int64_t kMostSpreadTileRows = 128;

/// How many rows `step` bytes apart, as the heads of [M, 128, 128] have them, are copied closer
/// together at a time; 0: they are read as they come. Copied are rows of one register block that
/// would push its own out of L1 while every dot product takes a load, and those of many tiles. With
/// two panels a load serves two, and waiting for L2 costs less than the copy (6 to 15 %).
int64_t spread_rows(const GemmPlan& plan, const GemmFacts& facts, int64_t step,
                    int64_t m) noexcept {
  if (!facts.tiles()) {
    const GemmBlocking& blocking = plan.blocking(m);
    return blocking.nr == 1 && m <= blocking.mr && meet_in_l1(step, m) ? m : 0;
  }
  if (m < kFewestSpreadTileRows || plan.spec().problem.n < kFewestSpreadTileColumns) return 0;
  if (step % kMeetInL2 != 0) return 0;
  const int64_t fitting = kSpreadAtOnce / std::max<int64_t>(facts.k * facts.a_bytes, 1);
  return std::clamp(fitting / 32 * 32, int64_t{32}, kMostSpreadTileRows);
}

/// The most of any m up to max_m: rows at step 0 meet everywhere.
int64_t most_spread_rows(const GemmPlan& plan, const GemmFacts& facts, int64_t max_m) noexcept {
  if (facts.tiles()) return spread_rows(plan, facts, 0, max_m);
  int64_t most = 0;
  for (int64_t m = 1; m <= std::min<int64_t>(max_m, kMostBlockRows); ++m) {
    most = std::max(most, spread_rows(plan, facts, 0, m));
  }
  return most;
}

/// One thread's share of a call.
class Share {
 public:
  Share(const BmmCall& call, int tid) noexcept
      : call_(call),
        family_(call.plan->family(call.m)),
        units_(column_units(*call.plan)),
        partial_(call.memory + tid * call.scratch.bytes()),
        rows_memory_(partial_ + call.scratch.partial_bytes),
        panels_memory_(rows_memory_ + call.scratch.row_bytes) {
    const ThreadGrid& grid = call.run.grid;
    rows_ = split_steps(call.m, family_.facts.row_step, grid.m_parts, tid / grid.n_parts);
    columns_ = split_range(call.batch * units_, grid.n_parts, tid % grid.n_parts);
    if (rows_.size() == 0 || columns_.size() == 0) return;
    first_ = columns_.begin / units_;
    matrices_ = ceil_div(columns_.end, units_) - first_;
    at_once_ = std::min(call.plain() ? call.scratch.panels_at_once : units_, units_);
    parts_ = ceil_div(units_, at_once_);
  }

  void run() noexcept {
    int64_t count = matrices_ * parts_;
    while (count > 0 && part(count - 1).panels.size() <= 0) --count;
    for (int64_t i = 0; i < count; ++i) {
      const Part now = part(i);
      if (now.panels.size() > 0) multiply(now, i + 1 == count);
    }
  }

 private:
  /// Panels of one matrix that are multiplied before the thread moves on.
  struct Part {
    int64_t matrix = 0;
    Range panels;
  };

  // Matrix by matrix, each in parts where it has to be packed first; a B that all products share
  // part by part, so that each part is packed once.
  Part part(int64_t i) const noexcept {
    const bool shared = call_.plain() && call_.b_step == 0;
    const int64_t matrix = first_ + (shared ? i % matrices_ : i / parts_);
    const int64_t at = shared ? i / matrices_ : i % parts_;
    const Range mine{columns_.begin - matrix * units_, columns_.end - matrix * units_};
    return {
        matrix,
        {std::max(at * at_once_, mine.begin), std::min({(at + 1) * at_once_, units_, mine.end})}};
  }

  void multiply(const Part& part, bool last) noexcept {
    GemmRun run = call_.run;
    GemmPiece piece;
    if (call_.plain()) {
      // Pieces count panels from the first of the matrix.
      run.panels = pack(part) - part.panels.begin * run.panel_bytes;
    } else {
      run.panels = call_.panels.at(part.matrix);
      run.col_scale = call_.col_scale.at(part.matrix);
    }
    MatrixView a = call_.a;
    a.data = static_cast<const std::byte*>(a.data) + part.matrix * call_.a_step;
    run.a = static_cast<const std::byte*>(a.data);
    run.c = call_.c.at(part.matrix);
    piece.panels = part.panels;
    const std::byte* next = call_.plain() || last ? nullptr : call_.panels.at(part.matrix + 1);
    if (call_.rows == RowPreparation::kNone) {
      piece.rows = rows_;
      piece.next = next;
      piece.last = last;
      run_gemm_piece(run, piece, &pieces_, partial_);
      return;
    }
    for (int64_t row = rows_.begin; row < rows_.end; row += piece.rows.size()) {
      piece.rows = {0, std::min(call_.scratch.rows_at_once, rows_.end - row)};
      const bool last_rows = row + piece.rows.size() == rows_.end;
      piece.next = last_rows ? next : run.panels;
      piece.last = last && last_rows;
      prepare(a, row, piece.rows.size(), &run);
      run.c = call_.c.at(part.matrix) + row * call_.run.c_stride;
      run_gemm_piece(run, piece, &pieces_, partial_);
    }
  }

  /// Rows of A in scratch: as the kernel wants them, or only closer together.
  void prepare(MatrixView a, int64_t first, int64_t count, GemmRun* run) noexcept {
    PreparedRows prepared(call_.rows, count, a.cols, 1);
    prepared.use(rows_memory_);
    a.data = static_cast<const std::byte*>(a.data) + first * call_.run.a_stride;
    a.rows = count;
    prepared.prepare(nullptr, a, {0, count}, 0);
    run->a = prepared.rows(0);
    run->a_stride = prepared.stride();
  }

  /// The part's panels in scratch. A B that all products share may be there already.
  const std::byte* pack(const Part& part) noexcept {
    const PanelSource from = call_.b.moved_by(part.matrix * call_.b_step);
    const Range& want = part.panels;
    if (packed_ == from.data() && have_.begin == want.begin && have_.end >= want.end) {
      return panels_memory_;
    }
    from.pack(want.begin, want.size(), call_.run.panel_bytes, panels_memory_);
    packed_ = from.data();
    have_ = want;
    return panels_memory_;
  }

  const BmmCall& call_;
  const GemmFamily& family_;
  const int64_t units_;  ///< panels of a matrix
  std::byte* const partial_;
  std::byte* const rows_memory_;
  std::byte* const panels_memory_;
  Range rows_;
  Range columns_;  ///< panels in the row of all panels
  int64_t first_ = 0;
  int64_t matrices_ = 0;
  int64_t at_once_ = 1;
  int64_t parts_ = 0;
  const std::byte* packed_ = nullptr;
  Range have_;
  GemmPieces pieces_;
};

void bmm_phase(void* ctx, int /*phase*/, int tid, int /*nthreads*/) {
  const auto& call = *static_cast<const BmmCall*>(ctx);
  if (tid >= call.run.grid.m_parts * call.run.grid.n_parts) return;
  const MxcsrScope mxcsr;
  Share(call, tid).run();
}

}  // namespace

GemmBlocking bmm_blocking(const GemmFacts& facts, int64_t m) noexcept {
  // A short panel is soon read, and the one behind it in memory comes next, be it the next
  // matrix's: one stream is as long as the thread's share, where each of four would end with its
  // panel (5 to 12 % of a 512 x 128 decode; with 16 KiB the two are even). It alone has to keep
  // memory busy, so it is fetched further ahead than four (4 to 9 % more). Not by FMAs on f32 rows,
  // which are twice the chain: four panels at a time hide it (20 to 29 %).
  constexpr int64_t kShortPanel = 16 << 10;
  constexpr int kAhead = 8192;
  // More rows have more than one chain, and of two panels each load serves two dots: 7 to 24 % at
  // M = 9 to 14. 15 and 16 are two blocks of rows, the second of which finds the panels in a cache:
  // 13 to 30 %. Panels are then fetched in the order of memory, and further ahead (6 % at 512 x
  // 128). With vectors of half width (GemmFacts::half_width) two blocks from the start.
  constexpr int64_t kPanelInL2 = 128 << 10;
  constexpr int kAheadOfTwoBlocks = 6144;
  // Rows of C lie far apart, and a block of 64 columns writes whole lines of them.
  constexpr int kWholeLines = 4;
  // Tiles: a block this deep or less spends more on C than on dot products (12 to 20 % of 512 x 128
  // at M 256); a deeper one is better off with the fewer loads of two tiles of rows.
  constexpr int64_t kShallow = 256;
  GemmBlocking b = default_blocking(facts, m);
  const auto use = [&](int nr) {
    b.mr = max_mr(facts, nr);
    b.nr = nr;
    b.nc = kPanelColumns * nr;
    b.prefetch_bytes = kAhead / nr;
  };
  if (facts.tiles()) {
    // One tile of rows is configured anew for a matrix's last rows, two serve both: only where
    // there are many rows beside them.
    constexpr int64_t kManyRows = 128;
    if (m < kManyRows || facts.k > kShallow) return b;
    use(kWholeLines);
  } else if (m <= max_mr(facts, 1)) {
    const bool widened = facts.a_bytes > 2;
    const bool few = m <= kHalfBlockRows;
    if (widened || bytes_of_panel(facts) > (few ? kShortPanel : kPanelInL2)) return b;
    use(few ? 1 : 2);
    if (few || (m <= b.mr && !facts.half_width)) return b;
    b.mr = kHalfBlockRows;
    b.mc = b.mr * 2;
    b.prefetch_bytes = kAheadOfTwoBlocks;
    return b;
  } else if (facts.panel_registers == 1) {
    use(kWholeLines);
  }
  b.mc = b.mc / b.mr * b.mr;
  return b;
}

BmmScratch bmm_scratch(const GemmPlan& plan, int64_t max_m, bool plain) noexcept {
  BmmScratch scratch;
  scratch.partial_bytes = lines_up(plan.partial_bytes(max_m));
  const GemmFacts& facts = plan.spec().families[0].facts;
  const auto& families = plan.spec().families;
  const bool widens = std::any_of(families.begin(), families.end(), [](const GemmFamily& f) {
    return f.rows != RowPreparation::kNone;
  });
  const int64_t rows = std::clamp<int64_t>(max_m, 1, kMostPreparedRows);
  scratch.rows_at_once = rows;
  if (widens) {
    scratch.row_bytes = PreparedRows(RowPreparation::kWiden, rows, facts.k, 1).bytes();
  } else {
    const int64_t spread = most_spread_rows(plan, facts, max_m);
    if (spread != 0) {
      scratch.row_bytes = PreparedRows(RowPreparation::kSpread, spread, facts.k, 1).bytes();
    }
  }
  if (plain) {
    const int64_t bytes = std::max<int64_t>(bytes_of_panel(facts), 64);
    scratch.panels_at_once = std::max<int64_t>(kPackedAtOnce / bytes, kMostBlockPanels);
    scratch.panel_bytes =
        std::min(scratch.panels_at_once, std::max<int64_t>(column_units(plan), 1)) * bytes;
  }
  return scratch;
}

void run_bmm(ThreadPool& pool, BmmCall* call) noexcept {
  const GemmFamily& family = call->plan->family(call->m);
  call->rows = family.rows;
  if (family.rows == RowPreparation::kNone) {
    const int64_t rows = spread_rows(*call->plan, family.facts, call->run.a_stride, call->m);
    if (rows != 0) {
      call->rows = RowPreparation::kSpread;
      call->scratch.rows_at_once = rows;
    }
  }
  if (call->plain()) {
    call->run.panel_bytes = bytes_of_panel(family.facts);
    // Whole register blocks, so that none is cut in two.
    const int64_t nr = call->plan->blocking(call->m).nr;
    call->scratch.panels_at_once = call->scratch.panels_at_once / nr * nr;
  }
  call->run.plan = call->plan;
  call->run.k = call->plan->family(call->m).facts.k;
  call->run.m = call->m;
  call->run.grid = choose_grid(ceil_div(call->m, family.facts.row_step),
                               call->batch * column_units(*call->plan), pool.size());
  pool.run(1, bmm_phase, call);
}

}  // namespace quern::inline v0
