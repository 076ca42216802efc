#pragma once

#include <cstdint>

namespace quern::amx_emu {

/// Palette 1, the only one there is.
inline constexpr int kTiles = 8;
inline constexpr int kMaxRows = 16;
inline constexpr int kMaxRowBytes = 64;
inline constexpr int kConfigBytes = 64;

struct alignas(kMaxRowBytes) Tile {
  uint8_t row[kMaxRows][kMaxRowBytes];
};

/// TILECFG and the eight tile registers of one thread. A plain value: zero-filled memory is the
/// state after TILERELEASE, and a copy is a snapshot.
struct TileState {
  Tile tile[kTiles];
  uint16_t colsb[kTiles];  ///< bytes of a row
  uint8_t rows[kTiles];
  uint8_t palette;    ///< 0: tiles are not configured (TILES_CONFIGURED = 0)
  uint8_t start_row;  ///< where an interrupted load or store goes on
  /// Bit t: tile t was loaded, zeroed or accumulated into since LDTILECFG. Hardware keeps no such
  /// thing (its tiles read as zero then); strict mode asks it.
  uint8_t written;

  bool configured() const { return palette != 0; }
  /// A register that the configuration gives no rows cannot be used.
  bool valid(int t) const { return configured() && rows[t] != 0 && colsb[t] != 0; }
};

/// What TILERELEASE leaves: nothing configured, every byte zero.
void release(TileState& state);

/// LDTILECFG: takes the 64 bytes over and zeroes all tiles, or returns the rule that they break
/// (static text; #GP on hardware) and leaves the state as it was. Null: taken.
const char* load_config(TileState& state, const uint8_t config[kConfigBytes]);

/// STTILECFG: the configuration as LDTILECFG would take it; zeros where nothing is configured.
void store_config(const TileState& state, uint8_t config[kConfigBytes]);

/// Zeroes the columns from colsb on of row `row`, and the rows from the configured ones on.
void zero_row_tail(TileState& state, int tile, int row);
void zero_upper_rows(TileState& state, int tile);

}  // namespace quern::amx_emu
