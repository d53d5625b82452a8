// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zero {

/// A step of an axis up to `most` > 0: 1, 2 or 5 times a power of ten, at most six of it.
double axis_step(double most);
/// SVG of a line across a chart at the height `y`, with its value to the left.
std::string grid_line(double left, double right, double y, std::string_view value);

/// A value over a world, with the range that its repeats span.
struct ChartPoint {
  int world = 1;
  double value = 0;
  double low = 0;
  double high = 0;
};
struct ChartLine {
  std::string name;
  std::string style;    ///< a class of the page's style
  bool hollow = false;  ///< dashed, with hollow marks: predicted
  bool marked = true;   ///< has marks, beside those of other lines
  std::vector<ChartPoint> points{};
};

/// Bars of one world, one upon the other, and a mark across.
struct ChartBar {
  int world = 1;
  std::string name{};  ///< under it
  struct Part {
    std::string style;
    double value = 0;
  };
  std::vector<Part> parts{};
  std::optional<double> mark{};
  std::string title{};  ///< shown when pointed at
};

/// How a chart writes values.
using ValueText = std::function<std::string(double)>;

/// SVG of lines over worlds, which are spaced evenly; the value axis begins at 0 and has
/// `least_top` in it. Empty without a point.
std::string line_chart(const std::string& title, const std::vector<ChartLine>& lines,
                       const ValueText& text, double least_top = 0);
/// SVG of bars, in groups by world. Empty without a bar.
std::string bar_chart(const std::string& title, const std::vector<ChartBar>& bars,
                      const ValueText& text);

}  // namespace zero
