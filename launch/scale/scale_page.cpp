// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The report as a page: charts, the machine, the table.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "launch/process/quantity.h"
#include "launch/scale/scale_report.h"
#include "launch/telemetry/chart.h"
#include "launch/telemetry/page.h"

namespace zero {
namespace {

constexpr std::string_view kScaleStyle = R"(
body { max-width: 72rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 0.8rem 1.6rem; }
svg .title { font-weight: 600; fill: var(--ink); font-size: 13px; }
svg .small { font-size: 10px; }
svg .line { fill: none; stroke: var(--of); stroke-width: 1.8; }
svg .bar { fill: none; stroke: var(--of); stroke-width: 1.4; }
svg .dashed { stroke-dasharray: 5 4; }
svg .mark { stroke: var(--ink); stroke-width: 2; fill: none; }
svg .ideal { stroke: var(--dim); stroke-width: 1.2; stroke-dasharray: 2 4; }
svg .hollow { fill: var(--paper); stroke: var(--of); stroke-width: 1.6; }
.c0 { --of: #4269d0; } .c1 { --of: #d9822b; } .c2 { --of: #2f9e6e; }
.c3 { --of: #b8456b; } .c4 { --of: #8e5bb5; } .c5 { --of: #6b8e23; }
.phase { --of: #8a929c; } .exposed { --of: #e8604c; } .hidden { --of: #6cc5b0; }
.failed { color: #c0392b; }
.wide { overflow-x: auto; font-size: 13px; }
.wide th, .wide td { padding-right: 0.9rem; vertical-align: bottom; }
.wide td.number, .wide td:first-child { white-space: nowrap; }
.wide :is(th, td):first-child { position: sticky; left: 0; background: var(--paper); }
.wide td:last-child { min-width: 14rem; }
.wide .number { text-align: right; }
pre { overflow-x: auto; font-size: 12px; }
)";
constexpr std::size_t kColours = 6;

/// Whether a line over worlds has the point: the baseline is the begin of all lines.
bool on_line(const ScaleRow& row, const ScalePoint& line) {
  return row.point.is_baseline() || row.point.same_line(line);
}

std::string line_name(const ScalePoint& point) {
  const std::string mesh = point.mesh == SweepMesh() ? "" : ", " + point.mesh.text();
  return fmt::format("stage {}{}", point.stage, mesh);
}

/// Draws a report.
class ScalePage {
 public:
  explicit ScalePage(const ScaleReport& report) : report_(report) {
    for (const ScaleRow& row : report.rows) {
      if (row.point.is_baseline()) continue;
      const std::string name = line_name(row.point);
      if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
    }
  }

  std::string text() const {
    const std::string title = "Scaling of " + report_.sweep.model_text;
    std::string page = page_begin("zero_scale", title, title, kScaleStyle);
    if (!report_.complete) page += "<p class=\"failed\">Not complete: the sweep was stopped.</p>\n";
    page += legend();
    for (const Scaling scaling : report_.sweep.scalings) page += charts(scaling);
    page += "<h2>Rows</h2>\n" + table() + "<h2>Machine</h2>\n" + facts();
    return page + fmt::format("<h2>Commands</h2>\n<pre>{}</pre>\n</body>\n</html>\n", commands());
  }

 private:
  std::string colour(const ScalePoint& point) const {
    const auto at = std::ranges::find(names_, line_name(point)) - names_.begin();
    return fmt::format("c{}", static_cast<std::size_t>(at) % kColours);
  }

  std::string legend() const {
    std::string text = "<p class=\"legend\">";
    for (std::size_t i = 0; i < names_.size(); ++i) {
      text +=
          fmt::format("<span><i class=\"c{}\"></i>{}</span> ", i % kColours, html_text(names_[i]));
    }
    text += "<span><i class=\"exposed\"></i>exposed communication</span> ";
    return text +
           "<span><i class=\"hidden\"></i>hidden communication</span> "
           "<span>dotted: ideal</span> <span>bars on points: least and largest run</span> "
           "<span>hollow, dashed: predicted</span> <span>line across a bar: planned (memory), "
           "predicted "
           "(exposed)</span> <span>s3t2: stage 3, tensor=2</span></p>\n";
  }

  /// The points that begin lines of that scaling, one a line.
  std::vector<ScalePoint> lines_of(Scaling scaling) const {
    std::vector<ScalePoint> lines;
    for (const ScaleRow& row : report_.rows) {
      const ScalePoint& point = row.point;
      if (point.is_baseline() || point.scaling != scaling) continue;
      const bool known =
          std::ranges::any_of(lines, [&](const ScalePoint& line) { return line.same_line(point); });
      if (!known) lines.push_back(point);
    }
    return lines;
  }

  /// One line of rows; `value` gives a row's figure, `factor` scales its range likewise.
  template <typename Value>
  ChartLine chart_line(const ScalePoint& line, const Value& value) const {
    ChartLine drawn{.name = line_name(line), .style = colour(line)};
    for (const ScaleRow& row : report_.rows) {
      if (!row.measured() || !on_line(row, line)) continue;
      const double at = value(row);
      if (at <= 0) continue;
      const auto [low, high] = row.range();
      drawn.points.push_back({.world = row.point.world,
                              .value = at,
                              .low = at * low / row.median(),
                              .high = at * high / row.median()});
    }
    return drawn;
  }

  ChartLine predicted_line(const ScalePoint& line) const {
    ChartLine drawn{.name = line_name(line) + ", predicted", .style = colour(line), .hollow = true};
    for (const ScaleRow& row : report_.rows) {
      if (!row.predicted || !on_line(row, line)) continue;
      const double rate = row.predicted->tokens_per_second();
      drawn.points.push_back({.world = row.point.world, .value = rate, .low = rate, .high = rate});
    }
    return drawn;
  }

  /// `value` of the rows that have an efficiency, of the worlds of a line.
  template <typename Value>
  ChartLine ideal_line(const ScalePoint& line, const Value& value) const {
    ChartLine drawn{.name = "ideal", .style = "ideal", .marked = false};
    for (const ScaleRow& row : report_.rows) {
      if (row.efficiency <= 0 || !on_line(row, line)) continue;
      drawn.points.push_back({.world = row.point.world, .value = value(row)});
    }
    return drawn;
  }

  std::string charts(Scaling scaling) const {
    const std::vector<ScalePoint> lines = lines_of(scaling);
    if (lines.empty()) return "";
    const auto at_ideal = [](const ScaleRow& row) { return row.median() / row.efficiency; };
    std::vector<ChartLine> rates{ideal_line(lines.front(), at_ideal)};
    std::vector<ChartLine> efficiencies{
        ideal_line(lines.front(), [](const ScaleRow&) { return 1.0; })};
    std::vector<ChartLine> shares;
    for (const ScalePoint& line : lines) {
      rates.push_back(chart_line(line, [](const ScaleRow& row) { return row.median(); }));
      ChartLine predicted = predicted_line(line);
      if (!predicted.points.empty()) rates.push_back(std::move(predicted));
      efficiencies.push_back(chart_line(line, [](const ScaleRow& row) { return row.efficiency; }));
      shares.push_back(chart_line(line, [](const ScaleRow& row) { return row.flop_share; }));
    }
    const auto percent = [](double value) { return fmt::format("{:.4g} %", 100 * value); };
    const std::string what =
        scaling == Scaling::strong
            ? fmt::format("Strong scaling: {} sequences a step", report_.sweep.batch)
            : fmt::format("Weak scaling: {} sequences a rank and step", report_.sweep.batch);
    return fmt::format("<h2>{}</h2>\n<div class=\"charts\">\n", what) +
           line_chart("tokens/s", rates, count_text) +
           line_chart("tokens/s, of ideal", efficiencies, percent, 1) +
           bar_chart("communication of a step, first rank", communication_bars(scaling),
                     [](double ms) { return fmt::format("{:.4g} ms", ms); }) +
           bar_chart("memory of the largest rank", memory_bars(scaling),
                     [](double mebibytes) { return fmt::format("{:.4g} MiB", mebibytes); }) +
           line_chart("FLOP of the model, of the machine's product rate", shares, percent) +
           "</div>\n";
  }

  /// Named "s3t2": stage 3, tensor=2.
  static ChartBar bar_of(const ScaleRow& row) {
    const SweepMesh& mesh = row.point.mesh;
    ChartBar bar{.world = row.point.world, .name = fmt::format("s{}", row.point.stage)};
    if (mesh.replicate > 1) bar.name += fmt::format("r{}", mesh.replicate);
    if (mesh.tensor > 1) bar.name += fmt::format("t{}", mesh.tensor);
    if (row.point.is_baseline()) bar.name = "one";
    return bar;
  }

  std::vector<ChartBar> communication_bars(Scaling scaling) const {
    std::vector<ChartBar> bars;
    for (const ScaleRow& row : report_.rows) {
      if (!row.measured() || row.point.is_baseline() || row.point.scaling != scaling) continue;
      ChartBar bar = bar_of(row);
      bar.parts = {{"exposed", 1e3 * row.figures.exposed_seconds},
                   {"hidden", 1e3 * row.figures.hidden_seconds()}};
      if (row.predicted) bar.mark = 1e3 * row.predicted->slowest().exposed_seconds;
      bar.title = fmt::format("{}: {:.2f} ms exposed, {:.2f} ms hidden, of a step of {:.2f} ms",
                              row.point.text(), 1e3 * row.figures.exposed_seconds,
                              1e3 * row.figures.hidden_seconds(), 1e3 * row.figures.step_seconds);
      bars.push_back(std::move(bar));
    }
    return bars;
  }

  std::vector<ChartBar> memory_bars(Scaling scaling) const {
    constexpr double kUnit = 1024.0 * 1024.0;
    std::vector<ChartBar> bars;
    for (const ScaleRow& row : report_.rows) {
      const bool here = row.point.is_baseline() || row.point.scaling == scaling;
      if (!row.measured() || !here) continue;
      ChartBar bar = bar_of(row);
      const auto used = static_cast<double>(row.figures.used_bytes);
      const auto planned = static_cast<double>(row.figures.planned_bytes);
      bar.parts = {{row.point.is_baseline() ? "phase" : colour(row.point), used / kUnit}};
      bar.mark = planned / kUnit;
      bar.title = fmt::format("{}: {} used, {} planned", row.point.text(), bytes_text(used),
                              bytes_text(planned));
      bars.push_back(std::move(bar));
    }
    return bars;
  }

  std::string table() const {
    std::string html = "<div class=\"wide\"><table>\n";
    const std::vector<std::vector<std::string>> rows = report_.table();
    const auto is_number = [&](std::size_t column) {
      return std::all_of(rows.begin() + 1, rows.end(), [&](const std::vector<std::string>& row) {
        return row[column].find_first_not_of("0123456789.+-% ") == std::string::npos;
      });
    };
    for (const std::vector<std::string>& row : rows) {
      html += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i) {
        const bool number = i + 1 < row.size() && is_number(i);
        const char* const style = row[i].starts_with("FAILED") ? " class=\"failed\""
                                  : number                     ? " class=\"number\""
                                                               : "";
        html += fmt::format("<{0}{1}>{2}</{0}>", &row == rows.data() ? "th" : "td", style,
                            html_text(row[i]));
      }
      html += "</tr>\n";
    }
    return html + "</table></div>\n";
  }

  std::string facts() const {
    std::string html = "<table>\n";
    for (const auto& [name, value] : report_.machine) {
      html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", html_text(name), html_text(value));
    }
    return html + "</table>\n";
  }

  std::string commands() const {
    std::string html;
    std::istringstream lines(report_.commands);
    for (std::string line; std::getline(lines, line);) html += html_text(line) + "\n";
    return html;
  }

  const ScaleReport& report_;
  std::vector<std::string> names_;  // of lines; their places choose colours
};

}  // namespace

std::string ScaleReport::html() const { return ScalePage(*this).text(); }

}  // namespace zero
