#include "tests/support/amx_execute.h"

#include <cstring>
#include <initializer_list>

#include "tests/support/amx_dot.h"

namespace quern::amx_emu {
namespace {

Fault undefined(const char* rule) {
  return {FaultKind::kUndefined, rule};
}

Fault check_configured(const TileState& state) {
  if (state.configured()) return {};
  return undefined("tiles are not configured");
}

/// Rules for a single register; loads and stores and dot products also ask for whole dwords.
Fault check_tile(const TileState& state, int tile) {
  if (state.valid(tile)) return {};
  return undefined("a tile that the configuration gives no rows");
}
Fault check_dwords(const TileState& state, int tile) {
  if (Fault f = check_tile(state, tile)) return f;
  if (state.colsb[tile] % 4 == 0) return {};
  return undefined("colsb is not a multiple of 4");
}

Fault check_move(const TileState& state, int tile) {
  if (Fault f = check_configured(state)) return f;
  if (Fault f = check_dwords(state, tile)) return f;
  if (state.start_row < state.rows[tile]) return {};
  return undefined("start_row is not below the tile's rows");
}

Fault check_dot(const TileState& s, const Instruction& i) {
  if (Fault f = check_configured(s)) return f;
  if (i.dst == i.src1 || i.dst == i.src2 || i.src1 == i.src2) {
    return undefined("two operands are the same tile");
  }
  for (const int tile : {i.dst, i.src1, i.src2}) {
    if (Fault f = check_dwords(s, tile)) return f;
  }
  if (s.rows[i.dst] != s.rows[i.src1]) return undefined("rows of C and of A differ");
  if (s.colsb[i.dst] != s.colsb[i.src2]) return undefined("colsb of C and of B differ");
  if (s.colsb[i.src1] / 4 != s.rows[i.src2]) return undefined("colsb / 4 of A is not rows of B");
  return {};
}

uint8_t* row_address(const Instruction& i, int row) {
  return reinterpret_cast<uint8_t*>(i.address + static_cast<uint64_t>(row) * i.stride);
}

/// start_row is in memory before every access, where whoever handles a page fault finds it.
void set_start_row(TileState& state, int row) {
  state.start_row = static_cast<uint8_t>(row);
  __asm__ volatile("" : : : "memory");
}

void load_tile(TileState& s, const Instruction& i) {
  Tile& tile = s.tile[i.dst];
  const size_t bytes = s.colsb[i.dst];
  const int first = s.start_row;
  std::memset(tile.row[first], 0, static_cast<size_t>(kMaxRows - first) * kMaxRowBytes);
  s.written = static_cast<uint8_t>(s.written | (1u << i.dst));
  for (int row = first; row < s.rows[i.dst]; ++row) {
    set_start_row(s, row);
    std::memcpy(tile.row[row], row_address(i, row), bytes);
  }
  set_start_row(s, 0);
}

void store_tile(TileState& s, const Instruction& i) {
  const size_t bytes = s.colsb[i.src1];
  for (int row = s.start_row; row < s.rows[i.src1]; ++row) {
    set_start_row(s, row);
    std::memcpy(row_address(i, row), s.tile[i.src1].row[row], bytes);
  }
  set_start_row(s, 0);
}

void zero_tile(TileState& s, int tile) {
  std::memset(&s.tile[tile], 0, sizeof(Tile));
  s.written = static_cast<uint8_t>(s.written | (1u << tile));
  s.start_row = 0;
}

void dot(TileState& s, const Instruction& i, DotPath path) {
  const DotOperands operands{&s.tile[i.dst], &s.tile[i.src1],    &s.tile[i.src2],
                             s.rows[i.dst],  s.colsb[i.dst] / 4, s.rows[i.src2]};
  if (path == DotPath::kAvx2 || (path == DotPath::kFastest && has_avx2())) {
    dot_avx2(i.op, operands);
  } else {
    dot_portable(i.op, operands);
  }
  for (int row = 0; row < s.rows[i.dst]; ++row) zero_row_tail(s, i.dst, row);
  zero_upper_rows(s, i.dst);
  s.written = static_cast<uint8_t>(s.written | (1u << i.dst));
  s.start_row = 0;
}

Fault configure(TileState& state, const Instruction& i) {
  uint8_t config[kConfigBytes];
  std::memcpy(config, reinterpret_cast<const void*>(i.address), sizeof config);
  if (const char* rule = load_config(state, config)) return {FaultKind::kProtection, rule};
  return {};
}

void write_config(const TileState& state, const Instruction& i) {
  uint8_t config[kConfigBytes];
  store_config(state, config);
  std::memcpy(reinterpret_cast<void*>(i.address), config, sizeof config);
}

}  // namespace

Fault check(const TileState& state, const Instruction& i) {
  switch (i.op) {
    case Op::kLdtilecfg:
    case Op::kSttilecfg:
    case Op::kTilerelease:
      return {};
    case Op::kTilezero:
      if (Fault f = check_configured(state)) return f;
      return check_tile(state, i.dst);
    case Op::kTileloadd:
    case Op::kTileloaddt1:
      return check_move(state, i.dst);
    case Op::kTilestored:
      return check_move(state, i.src1);
    default:
      return check_dot(state, i);
  }
}

Fault execute(TileState& state, const Instruction& i, DotPath path) {
  if (Fault f = check(state, i)) return f;
  switch (i.op) {
    case Op::kLdtilecfg:
      return configure(state, i);
    case Op::kSttilecfg:
      write_config(state, i);
      return {};
    case Op::kTilerelease:
      release(state);
      return {};
    case Op::kTilezero:
      zero_tile(state, i.dst);
      return {};
    case Op::kTileloadd:
    case Op::kTileloaddt1:
      load_tile(state, i);
      return {};
    case Op::kTilestored:
      store_tile(state, i);
      return {};
    default:
      dot(state, i, path);
      return {};
  }
}

Work work_of(const TileState& s, const Instruction& i) {
  Work work;
  if (check(s, i)) return work;
  const auto moved = [&s](int tile) {
    return static_cast<uint32_t>((s.rows[tile] - s.start_row) * s.colsb[tile]);
  };
  if (is_load(i.op)) {
    work.bytes_loaded = moved(i.dst);
  } else if (i.op == Op::kTilestored) {
    work.bytes_stored = moved(i.src1);
  } else if (is_dot(i.op)) {
    const int in_dword = is_int8_dot(i.op) ? 4 : 2;
    const int columns = kMaxRowBytes / 4;
    work.macs_issued = static_cast<uint32_t>(kMaxRows * columns * columns * in_dword);
    work.macs_useful =
        static_cast<uint32_t>(s.rows[i.dst] * (s.colsb[i.dst] / 4) * s.rows[i.src2] * in_dword);
  }
  return work;
}

uint8_t tiles_read(const Instruction& i) {
  if (i.op == Op::kTilestored) return static_cast<uint8_t>(1u << i.src1);
  if (is_dot(i.op)) return static_cast<uint8_t>((1u << i.dst) | (1u << i.src1) | (1u << i.src2));
  return 0;
}

}  // namespace quern::amx_emu
