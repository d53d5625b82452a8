// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/message_text.h"
#include "launch/telemetry/page.h"

namespace zero {
namespace {

// A chart in its own units; the page scales it.
constexpr double kChartWidth = 480;
constexpr double kChartHeight = 260;
constexpr double kChartLeft = 62;
constexpr double kChartRight = 468;
constexpr double kChartTop = 28;
constexpr double kChartBottom = 214;
constexpr double kMarkRadius = 3.5;

/// The frame of a chart: the value axis and the places of worlds.
class Frame {
 public:
  Frame(const std::set<int>& worlds, double most)
      : worlds_(worlds.begin(), worlds.end()),
        step_(axis_step(most)),
        top_(step_ * std::ceil(most / step_ * 1.02)) {}

  double group() const { return (kChartRight - kChartLeft) / static_cast<double>(worlds_.size()); }
  /// The middle of a world's group.
  double x(int world) const {
    const auto at = std::ranges::find(worlds_, world) - worlds_.begin();
    return kChartLeft + group() * (static_cast<double>(at) + 0.5);
  }
  double y(double value) const { return kChartBottom - (kChartBottom - kChartTop) * value / top_; }

  std::string begin(const std::string& title, const ValueText& text, double world_label) const {
    std::string svg = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text class=\"left title\" "
        "x=\"0\" y=\"14\">{}</text>\n",
        kChartWidth, kChartHeight, html_text(title), html_text(title));
    for (double value = 0; value <= top_ * 1.001; value += step_) {
      svg += grid_line(kChartLeft, kChartRight, y(value), text(value));
    }
    for (const int world : worlds_) {
      fmt::format_to(std::back_inserter(svg),
                     "<text class=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", x(world),
                     world_label, world);
    }
    return svg + fmt::format("<text class=\"middle\" x=\"{:.1f}\" y=\"{}\">ranks</text>\n",
                             (kChartLeft + kChartRight) / 2, world_label + 16);
  }

 private:
  std::vector<int> worlds_;
  double step_;
  double top_;
};

/// A mark with its error bar. Lines are `offset` apart, so that bars do not hide each other.
std::string mark_of(const Frame& frame, const ChartLine& line, const ChartPoint& point,
                    double offset, const ValueText& text) {
  const double x = frame.x(point.world) + offset;
  std::string svg;
  if (point.high > point.low) {
    svg = fmt::format(
        "<path class=\"bar {0}\" d=\"M{1:.1f},{2:.1f}V{3:.1f}M{4:.1f},{2:.1f}h8M{4:.1f},{3:.1f}h8\""
        "/>",
        line.style, x, frame.y(point.high), frame.y(point.low), x - 4);
  }
  return svg + fmt::format(
                   "<circle class=\"{}{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}, {}: "
                   "{}</title></circle>\n",
                   line.hollow ? "hollow " : "", line.style, x, frame.y(point.value), kMarkRadius,
                   html_text(line.name), counted(point.world, "rank"),
                   html_text(text(point.value)));
}

}  // namespace

double axis_step(double most) {
  double step = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double more : {2.0, 2.5, 2.0}) {
    if (most / step > 6) step *= more;
  }
  return step;
}

std::string grid_line(double left, double right, double y, std::string_view value) {
  return fmt::format(
      "<line class=\"grid\" x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\"/>"
      "<text class=\"right\" x=\"{3}\" y=\"{4:.1f}\">{5}</text>\n",
      left, right, y, left - 7, y + 4, html_text(value));
}

std::string line_chart(const std::string& title, const std::vector<ChartLine>& lines,
                       const ValueText& text, double least_top) {
  std::set<int> worlds;
  double most = least_top;
  for (const ChartLine& line : lines) {
    for (const ChartPoint& point : line.points) {
      worlds.insert(point.world);
      most = std::max({most, point.value, point.high});
    }
  }
  if (worlds.empty() || most <= 0) return "";
  const Frame frame(worlds, most);
  std::string svg = frame.begin(title, text, kChartBottom + 18);
  const auto marked = static_cast<double>(
      std::ranges::count_if(lines, [](const ChartLine& line) { return line.marked; }));
  const double apart = std::min(10.0, frame.group() / (marked + 1));
  double next = -apart * (marked - 1) / 2;
  for (const ChartLine& line : lines) {
    const double offset = line.marked ? next : 0;
    std::string path;
    std::string marks;
    for (const ChartPoint& point : line.points) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f},{:.1f}", path.empty() ? "M" : "L",
                     frame.x(point.world) + offset, frame.y(point.value));
      if (line.marked) marks += mark_of(frame, line, point, offset, text);
    }
    svg += fmt::format("<path class=\"line {}{}\" d=\"{}\"/>\n", line.hollow ? "dashed " : "",
                       line.style, path) +
           marks;
    if (line.marked) next += apart;
  }
  return svg + "</svg>\n";
}

std::string bar_chart(const std::string& title, const std::vector<ChartBar>& bars,
                      const ValueText& text) {
  std::set<int> worlds;
  double most = 0;
  for (const ChartBar& bar : bars) {
    worlds.insert(bar.world);
    double sum = 0;
    for (const ChartBar::Part& part : bar.parts) sum += part.value;
    most = std::max({most, sum, bar.mark.value_or(0)});
  }
  if (worlds.empty() || most <= 0) return "";
  const Frame frame(worlds, most);
  std::string svg = frame.begin(title, text, kChartBottom + 30);
  for (const int world : worlds) {
    const auto count = std::ranges::count(bars, world, &ChartBar::world);
    const double room = std::min(frame.group() * 0.9 / static_cast<double>(count), 40.0);
    const double width = room * 0.86;
    double x = frame.x(world) - room * static_cast<double>(count) / 2 + (room - width) / 2;
    for (const ChartBar& bar : bars) {
      if (bar.world != world) continue;
      svg += fmt::format("<g><title>{}</title>", html_text(bar.title));
      double sum = 0;
      for (const ChartBar::Part& part : bar.parts) {
        fmt::format_to(
            std::back_inserter(svg),
            "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
            part.style, x, frame.y(sum + part.value), width,
            frame.y(sum) - frame.y(sum + part.value));
        sum += part.value;
      }
      if (bar.mark) {
        fmt::format_to(std::back_inserter(svg),
                       "<path class=\"mark\" d=\"M{:.1f},{:.1f}h{:.1f}\"/>", x - 2,
                       frame.y(*bar.mark), width + 4);
      }
      fmt::format_to(std::back_inserter(svg),
                     "<text class=\"middle small\" x=\"{:.1f}\" y=\"{}\">{}</text></g>\n",
                     x + width / 2, kChartBottom + 13, html_text(bar.name));
      x += room;
    }
  }
  return svg + "</svg>\n";
}

}  // namespace zero
