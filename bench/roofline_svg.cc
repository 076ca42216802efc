#include "bench/roofline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace quern::bench {
namespace {

constexpr double kWidth = 900, kPanelHeight = 520;
constexpr double kLeft = 80, kRight = 250, kTop = 50, kBottom = 60;  // room round the plot

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // no control character is XML
    }
  }
  return out;
}

/// One decade or more of a logarithmic axis, in decimal exponents.
struct Axis {
  int low = 0;
  int high = 1;

  void include(double value) {
    if (!(value > 0)) return;
    const double exponent = std::log10(value);
    if (empty_) low = high = static_cast<int>(std::floor(exponent));
    empty_ = false;
    low = std::min(low, static_cast<int>(std::floor(exponent)));
    high = std::max({high, static_cast<int>(std::ceil(exponent)), low + 1});
  }
  /// 0 at the low end, 1 at the high one.
  double place(double value) const { return (std::log10(value) - low) / (high - low); }
  double least() const { return std::pow(10, low); }
  double most() const { return std::pow(10, high); }

 private:
  bool empty_ = true;
};

struct Point {
  const Row* row;
  double intensity;  ///< operations a byte
};

class Panel {
 public:
  Panel(int threads, const Roofs& roofs, std::vector<Point> points, double top)
      : threads_(threads), roofs_(roofs), points_(std::move(points)), top_(top) {
    x_.include(1);
    for (const Point& p : points_) {
      x_.include(p.intensity);
      y_.include(p.row->gops());
    }
    for (const RoofName& name : kRoofNames) {
      if (name.roof == Roof::kDram) continue;
      y_.include(roofs_[name.roof]);
      if (roofs_[Roof::kDram] > 0) x_.include(roofs_[name.roof] / roofs_[Roof::kDram]);  // ridge
    }
  }

  std::string svg() const {
    return fmt::format("<g id=\"threads-{}\">\n", threads_) + frame() + lines() + points() +
           "</g>\n";
  }

 private:
  double x(double intensity) const {
    return kLeft + x_.place(intensity) * (kWidth - kLeft - kRight);
  }
  double y(double gops) const {
    return top_ + kTop + (1 - y_.place(gops)) * (kPanelHeight - kTop - kBottom);
  }

  std::string text(double at_x, double at_y, const char* anchor, const std::string& what) const {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y,
                       anchor, escaped(what));
  }
  std::string line(double x1, double y1, double x2, double y2, const char* kind) const {
    return fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1,
        y1, x2, y2);
  }

  std::string frame() const {
    const double left = x(x_.least()), right = x(x_.most());
    const double bottom = y(y_.least()), top = y(y_.most());
    std::string out = text(left, top - 16, "start",
                           fmt::format("{} thread{}", threads_, threads_ == 1 ? "" : "s"));
    for (int e = x_.low; e <= x_.high; ++e) {
      const double at = x(std::pow(10, e));
      out += line(at, bottom, at, top, "grid") + text(at, bottom + 18, "middle", decade(e));
    }
    for (int e = y_.low; e <= y_.high; ++e) {
      const double at = y(std::pow(10, e));
      out += line(left, at, right, at, "grid") + text(left - 8, at + 4, "end", decade(e));
    }
    out += text((left + right) / 2, bottom + 40, "middle", "operations per byte of weights");
    return out + text(left - 60, top - 16, "start", "GOP/s");
  }

  static std::string decade(int exponent) {
    if (exponent >= 0 && exponent <= 5) return fmt::format("{:.0f}", std::pow(10, exponent));
    return fmt::format("1e{}", exponent);
  }

  std::string lines() const {
    std::string out;
    const double bandwidth = roofs_[Roof::kDram];
    double highest = 0;
    for (const RoofName& name : kRoofNames) {
      const double peak = roofs_[name.roof];
      if (name.roof == Roof::kDram || peak <= 0) continue;
      highest = std::max(highest, peak);
      const double ridge = bandwidth > 0 ? std::max(peak / bandwidth, x_.least()) : x_.least();
      out += line(x(ridge), y(peak), x(x_.most()), y(peak), "ceiling");
      out +=
          text(x(x_.most()) + 8, y(peak) + 4, "start", fmt::format("{} {:.0f}", name.label, peak));
    }
    if (bandwidth <= 0) return out;
    // From where it enters the plot to the highest ridge, or to the edge.
    const double from = std::max(x_.least(), y_.least() / bandwidth);
    double to = std::min(x_.most(), y_.most() / bandwidth);
    if (highest > 0) to = std::min(to, highest / bandwidth);
    if (to > from) {
      out += line(x(from), y(from * bandwidth), x(to), y(to * bandwidth), "bandwidth");
      const double middle = std::sqrt(from * to);  // the room above the line is free
      out += text(x(middle) - 8, y(middle * bandwidth) - 4, "end",
                  fmt::format("DRAM {:.1f} GB/s", bandwidth));
    }
    return out;
  }

  std::string points() const {
    std::string out;
    for (const Point& p : points_) {
      const Row& row = *p.row;
      const Floor floor = floor_of(row.work, roofs_);
      const char* kind = row.work.peak == Peak::kInt8 ? "int8" : "bf16";
      out += fmt::format(
          "<circle class=\"{}{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n",
          kind, row.work.from_memory ? "" : " hot", x(p.intensity), y(row.gops()),
          escaped(fmt::format("{}: {} us, {} GOP/s, {:.0f} % {}", to_string(row.problem),
                              format_number(row.us.median), format_number(row.gops()),
                              percent_of(floor, row.us.median), floor.bound)));
    }
    return out;
  }

  int threads_;
  Roofs roofs_;
  std::vector<Point> points_;
  double top_;
  Axis x_, y_;
};

constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#222}.grid{stroke:#ddd}.ceiling{stroke:#555;"
    "stroke-width:1.5}.bandwidth{stroke:#06c;stroke-width:2}circle{stroke-width:1.5}"
    ".int8{fill:#d60;stroke:#d60}.bf16{fill:#283;stroke:#283}.hot{fill:#fff}</style>\n";

/// Empty where the row has a point.
std::string why_no_point(const Row& row) {
  if (!row.error.empty()) return "it did not run: " + row.error;
  if (!row.has_numbers()) return "it was not timed";
  if (row.work.peak == Peak::kNone) {
    return "its op moves bytes and has no arithmetic peak; the table holds it to the bandwidth";
  }
  if (row.work.ops <= 0 || row.work.bytes <= 0) return "it is empty: no operations";
  return "";
}

}  // namespace

std::string roofline_svg(const Report& report, std::vector<std::string>* left_out) {
  std::map<int, std::vector<Point>> panels;
  for (const auto& [threads, pair] : report.roofs.of_threads) panels[threads];
  for (const Row& row : report.rows) {
    const std::string why = why_no_point(row);
    if (!why.empty()) {
      left_out->push_back(fmt::format("{}: {}", to_string(row.problem), why));
      continue;
    }
    panels[report.roofs.key(row.problem.threads)].push_back({&row, row.work.ops / row.work.bytes});
  }
  const double height = kPanelHeight * static_cast<double>(std::max<size_t>(1, panels.size())) + 60;
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n{2}<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kWidth, height, kStyle);
  out += fmt::format(
      "<text x=\"{}\" y=\"24\">{}</text>\n<text x=\"{}\" y=\"40\">int8 orange, bf16 green; hollow: "
      "the weights come from a cache and may pass the bandwidth line</text>\n",
      kLeft, escaped(fmt::format("{}, quern {}, {}", report.cpu, report.revision, report.started)),
      kLeft);
  double top = 50;
  for (auto& [threads, points] : panels) {
    out += Panel(threads, report.roofs.of(threads), std::move(points), top).svg();
    top += kPanelHeight;
  }
  return out + "</svg>\n";
}

}  // namespace quern::bench
