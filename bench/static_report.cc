#include "bench/static_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/text_table.h"
#include "bench/usage_error.h"

namespace quern::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLabel = "static model, not validated on hardware";
constexpr const char* kPreamble =
    "Static model, not validated on hardware: no number below was measured. Ports of a core like\n"
    "Golden Cove, everything in L1, no dependencies; how often an instruction runs is read off "
    "the\n"
    "generated code. Phases of a call (before the K loop, K loop, tiles to scratch, rows of C, "
    "end) do\n"
    "not overlap: cycles are the sum of each phase's busiest port. \"occupancy\" is the share of "
    "them\n"
    "that the tile multiplier is busy, in a call between others with tiles configured; \"alone\" "
    "adds\n"
    "loading and releasing the configuration and the latencies at both ends of the K loop.\n"
    "bench/README.md has the constants.\n";

StaticRow row_of(const std::string& name) {
  const StaticKernel kernel = static_kernel(name);
  StaticRow row{name, {kernel.mr, kernel.columns, kStaticDepth}, {}, 0};
  row.model = model_of(kernel, row.call);
  if (!kernel.tiles) return row;
  StaticCall alone = row.call;
  alone.alone = true;
  const CallModel model = model_of(kernel, alone);
  row.alone = model.total().tile / (model.duration() + kFillAndDrain);
  return row;
}

double loads_per_dot(const CallModel& model) {
  return model.tile_dots == 0
             ? 0
             : static_cast<double>(model.tile_loads) / static_cast<double>(model.tile_dots);
}

std::string percent(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

Json json_of(const PortUse& use) {
  Json out = Json::object();
  for (const Port port : kPorts) out[to_string(port)] = cycles(use, port);
  return out;
}

Json json_of(const StaticRow& row) {
  const CallModel& m = row.model;
  Json out{{"kernel", row.kernel},
           {"m", row.call.m},
           {"n", row.call.n},
           {"k", row.call.k},
           {"tile_dots", m.tile_dots},
           {"tile_loads", m.tile_loads},
           {"tile_stores", m.tile_stores},
           {"cycles", m.duration()},
           {"port_cycles", json_of(m.total())},
           {"binding", to_string(binding(m.total()))}};
  if (m.tile_dots > 0) {
    out["occupancy"] = m.occupancy();
    out["occupancy_alone"] = row.alone;
  }
  for (const CodePhase& phase : m.phases) {
    out["phases"].push_back({{"name", phase.name},
                             {"cycles", phase.duration()},
                             {"port_cycles", json_of(phase.use)},
                             {"binding", to_string(binding(phase.use))}});
  }
  return out;
}

}  // namespace

std::vector<StaticRow> static_rows(const std::vector<std::string>& names) {
  if (!can_decode()) {
    throw UsageError(
        "--static reads machine code with Zydis 4, which was not found when quern-bench was built "
        "(apt-get install libzydis-dev)");
  }
  std::vector<StaticRow> rows;
  for (const std::string& name : names.empty() ? default_static_kernels() : names) {
    rows.push_back(row_of(name));
  }
  return rows;
}

std::string static_text(const std::vector<StaticRow>& rows) {
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"kernel"},
                   {"m", kRight},
                   {"n", kRight},
                   {"K", kRight},
                   {"tile dots", kRight},
                   {"loads/dot", kRight},
                   {"cycles", kRight},
                   {"tile", kRight},
                   {"load", kRight},
                   {"store", kRight},
                   {"vector", kRight},
                   {"front end", kRight},
                   {"binds"},
                   {"occupancy %", kRight},
                   {"alone %", kRight}});
  for (const StaticRow& row : rows) {
    const CallModel& m = row.model;
    const PortUse total = m.total();
    const bool tiles = m.tile_dots > 0;
    std::vector<std::string> cells = {row.kernel,
                                      row.call.m == 0 ? "-" : std::to_string(row.call.m),
                                      std::to_string(row.call.n),
                                      std::to_string(row.call.k),
                                      std::to_string(m.tile_dots),
                                      tiles ? fmt::format("{:.2f}", loads_per_dot(m)) : "-",
                                      fmt::format("{:.0f}", m.duration())};
    for (const Port port :
         {Port::kTile, Port::kLoad, Port::kStore, Port::kVector, Port::kFrontEnd}) {
      cells.push_back(fmt::format("{:.0f}", cycles(total, port)));
    }
    cells.push_back(to_string(binding(total)));
    cells.push_back(tiles ? percent(m.occupancy()) : "-");
    cells.push_back(tiles ? percent(row.alone) : "-");
    table.add(std::move(cells));
  }
  return kPreamble + ('\n' + table.str(TextTable::Style::kMarkdown));
}

std::string static_json(const std::vector<StaticRow>& rows) {
  Json out{{"format", "quern-bench-static"}, {"version", 1}, {"note", kLabel}};
  out["rows"] = Json::array();
  for (const StaticRow& row : rows) out["rows"].push_back(json_of(row));
  return out.dump(2) + '\n';
}

}  // namespace quern::bench
