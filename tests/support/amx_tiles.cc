#include "tests/support/amx_tiles.h"

#include <cstring>
#include <type_traits>

namespace quern::amx_emu {
namespace {

// The 64 bytes: palette, start row, 14 reserved; 16 x colsb (u16); 16 x rows (u8). Palette 1 has
// eight registers, so that the second half of either table is reserved too.
constexpr int kColsbOffset = 16;
constexpr int kRowsOffset = 48;

bool all_zero(const uint8_t* bytes, int from, int to) {
  for (int i = from; i < to; ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

uint16_t colsb_of(const uint8_t* config, int t) {
  const uint8_t* p = config + kColsbOffset + 2 * t;
  return static_cast<uint16_t>(p[0] | (p[1] << 8));
}

const char* broken_rule(const uint8_t* config) {
  if (config[0] > 1) return "LDTILECFG: the palette is not 0 or 1";
  if (!all_zero(config, 2, kColsbOffset)) return "LDTILECFG: reserved bytes 2..15 are not zero";
  if (!all_zero(config, kColsbOffset + 2 * kTiles, kRowsOffset)) {
    return "LDTILECFG: colsb of a register that palette 1 does not have";
  }
  if (!all_zero(config, kRowsOffset + kTiles, kConfigBytes)) {
    return "LDTILECFG: rows of a register that palette 1 does not have";
  }
  for (int t = 0; t < kTiles; ++t) {
    const int colsb = colsb_of(config, t);
    const int rows = config[kRowsOffset + t];
    if (colsb > kMaxRowBytes) return "LDTILECFG: colsb is above 64";
    if (rows > kMaxRows) return "LDTILECFG: rows is above 16";
    if ((colsb == 0) != (rows == 0)) return "LDTILECFG: exactly one of rows and colsb is zero";
  }
  return nullptr;
}

}  // namespace

static_assert(std::is_trivially_copyable_v<TileState>);

void release(TileState& state) {
  std::memset(&state, 0, sizeof state);
}

const char* load_config(TileState& state, const uint8_t config[kConfigBytes]) {
  if (config[0] == 0) {  // the other bytes are not looked at
    release(state);
    return nullptr;
  }
  if (const char* rule = broken_rule(config)) return rule;
  release(state);
  state.palette = config[0];
  state.start_row = config[1];
  for (int t = 0; t < kTiles; ++t) {
    state.colsb[t] = colsb_of(config, t);
    state.rows[t] = config[kRowsOffset + t];
  }
  return nullptr;
}

void store_config(const TileState& state, uint8_t config[kConfigBytes]) {
  std::memset(config, 0, kConfigBytes);
  if (!state.configured()) return;
  config[0] = state.palette;
  config[1] = state.start_row;
  for (int t = 0; t < kTiles; ++t) {
    config[kColsbOffset + 2 * t] = static_cast<uint8_t>(state.colsb[t]);
    config[kColsbOffset + 2 * t + 1] = static_cast<uint8_t>(state.colsb[t] >> 8);
    config[kRowsOffset + t] = state.rows[t];
  }
}

void zero_row_tail(TileState& state, int tile, int row) {
  const size_t colsb = state.colsb[tile];
  std::memset(state.tile[tile].row[row] + colsb, 0, kMaxRowBytes - colsb);
}

void zero_upper_rows(TileState& state, int tile) {
  const size_t rows = state.rows[tile];
  std::memset(state.tile[tile].row[rows], 0, (kMaxRows - rows) * kMaxRowBytes);
}

}  // namespace quern::amx_emu
