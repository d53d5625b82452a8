// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/data/new_file.h"
#include "launch/memory/memory_report.h"
#include "launch/memory/picture_style.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

// The picture in its own units; the page scales it.
constexpr double kWidth = 1000;
constexpr double kLeft = 76;
constexpr double kRight = 984;
constexpr double kTop = 26;
constexpr double kBottom = 366;
constexpr double kPhasesTop = 378;
constexpr double kPhasesBottom = 396;
constexpr double kTimeAxis = 414;
constexpr double kHeight = 426;
constexpr int kColumns = 908;  // one a unit

/// By which a picture is told from other files.
constexpr std::string_view kPageBegin =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"generator\" content=\"zero_memory\"/>\n";

std::string sized_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

/// Text of a file or a label as text of the page.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable_line(text)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

/// Draws one series.
class Picture {
 public:
  explicit Picture(const MemorySeries& series)
      : series_(series),
        peak_(peak_of(series)),
        end_(end_of(series)),
        columns_(picture_columns(series, kColumns)),
        begin_(series.places.front().seconds),
        seconds_(std::max(series.end_seconds() - begin_, 1e-9)),
        most_(static_cast<double>(std::max<std::int64_t>(peak_.total, 1)) * 1.04) {}

  std::string page(std::int64_t labels) const {
    std::string text = fmt::format(
        "{}<meta "
        "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n"
        "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
        kPageBegin, escaped(series_.path), kPictureStyle, escaped(memory_report::title(series_)));
    text += legend() + drawing();
    text += class_rows() + label_rows(labels) + "</body>\n</html>\n";
    return text;
  }

 private:
  double x(double seconds) const {
    return kLeft + (kRight - kLeft) * (seconds - begin_) / seconds_;
  }
  double y(std::int64_t bytes) const {
    return kBottom - (kBottom - kTop) * static_cast<double>(bytes) / most_;
  }
  bool drawn(MemoryClass c) const {
    const auto i = static_cast<std::size_t>(c);
    return std::ranges::any_of(columns_,
                               [i](const PictureColumn& column) { return column.classes[i] > 0; });
  }
  const MemorySeries::Place& place(std::int32_t index) const {
    return series_.places[static_cast<std::size_t>(index)];
  }

  std::string legend() const {
    std::string text = "<p class=\"legend\">";
    for (const MemoryClass c : all_memory_classes()) {
      if (!drawn(c)) continue;
      text += fmt::format("<span><i class=\"{0}\"></i>{0}</span> ", name_of(c));
    }
    return text + "</p>\n";
  }

  std::string drawing() const {
    std::string text = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"memory by class over time\">\n",
        kWidth, kHeight);
    text += byte_axis();
    for (const MemoryClass c : all_memory_classes()) {
      if (drawn(c)) text += area(c);
    }
    return text + peak_mark() + phases() + time_axis() + "</svg>\n" + phase_legend();
  }

  /// Lines at round sizes: 1, 2 or 5 times a power of ten of a binary unit.
  std::string byte_axis() const {
    double unit = 1;
    while (unit * 1024 <= most_ && unit < std::ldexp(1, 40)) unit *= 1024;
    double step = std::pow(10, std::floor(std::log10(most_ / unit / 5)));
    for (const double more : {2.0, 2.5, 2.0}) {
      if (most_ / unit / step > 6) step *= more;
    }
    step = std::max(step, unit == 1 ? 1.0 : 0.0);
    std::string text;
    for (double at = 0; at * unit < most_; at += step) {
      const double height = y(static_cast<std::int64_t>(at * unit));
      fmt::format_to(std::back_inserter(text),
                     "<line class=\"grid\" x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\"/>"
                     "<text class=\"right\" x=\"{3}\" y=\"{4:.1f}\">{5:.4g} {6}</text>\n",
                     kLeft, kRight, height, kLeft - 8, height + 4, at, unit_name(unit));
    }
    return text;
  }

  static std::string_view unit_name(double unit) {
    constexpr std::array<std::string_view, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
    return kNames.at(static_cast<std::size_t>(std::lround(std::log2(unit) / 10)));
  }

  /// A class between the sums of those before it and with it: there above, back below.
  std::string area(MemoryClass c) const {
    const auto i = static_cast<std::size_t>(c);
    std::vector<std::int64_t> below(columns_.size());
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      for (std::size_t j = 0; j < i; ++j) below[k] += columns_[k].classes[j];
    }
    std::string text = fmt::format("<path class=\"{}\" d=\"M{},{:.1f}", name_of(c), kLeft,
                                   y(below[0] + columns_[0].classes[i]));
    const auto out = std::back_inserter(text);
    const auto edge = [&](std::size_t k) { return kLeft + static_cast<double>(k); };
    for (std::size_t k = 1; k < columns_.size(); ++k) {
      const std::int64_t before = below[k - 1] + columns_[k - 1].classes[i];
      const std::int64_t after = below[k] + columns_[k].classes[i];
      if (before != after) fmt::format_to(out, "H{}V{:.1f}", edge(k), y(after));
    }
    fmt::format_to(out, "H{}V{:.1f}", kRight, y(below.back()));
    for (std::size_t k = columns_.size() - 1; k > 0; --k) {
      if (below[k] != below[k - 1]) fmt::format_to(out, "H{}V{:.1f}", edge(k), y(below[k - 1]));
    }
    fmt::format_to(out, "H{}Z\"><title>{}: {} at the peak</title></path>\n", kLeft, name_of(c),
                   sized_text(peak_.state.classes[i]));
    return text;
  }

  std::string peak_mark() const {
    const double at = x(peak_.seconds);
    const bool to_left = at > (kLeft + kRight) / 2;
    return fmt::format(
        "<line class=\"peak\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>"
        "<text class=\"{3}\" x=\"{4:.1f}\" y=\"{5}\">peak {6}, {7}</text>\n",
        at, kTop - 8, kBottom, to_left ? "right" : "left", to_left ? at - 5 : at + 5, kTop - 10,
        sized_text(peak_.total), escaped(memory_report::place_text(place(peak_.place))));
  }

  /// A rectangle for each run of columns of one step and phase.
  std::string phases() const {
    std::string text;
    for (std::size_t from = 0; from < columns_.size();) {
      std::size_t to = from + 1;
      while (to < columns_.size() && columns_[to].place == columns_[from].place) ++to;
      if (columns_[from].place >= 0) {
        const MemorySeries::Place& here = place(columns_[from].place);
        fmt::format_to(std::back_inserter(text),
                       "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}"
                       "</title></rect>\n",
                       phase_class(here.phase), kLeft + static_cast<double>(from), kPhasesTop,
                       to - from, kPhasesBottom - kPhasesTop,
                       escaped(memory_report::place_text(here)));
      }
      from = to;
    }
    return text + fmt::format("<text class=\"right\" x=\"{}\" y=\"{}\">phase</text>\n", kLeft - 8,
                              kPhasesBottom - 5);
  }

  static std::string phase_class(std::string_view phase) {
    const auto* const found = std::ranges::find(kPicturePhases, phase);
    return found == kPicturePhases.end() ? "phase other_phase"
                                         : fmt::format("phase p{}", found - kPicturePhases.begin());
  }

  std::string phase_legend() const {
    std::vector<std::string> seen;
    for (const MemorySeries::Place& each : series_.places) {
      if (std::ranges::find(seen, each.phase) == seen.end()) seen.push_back(each.phase);
    }
    std::string text = "<p class=\"legend\">";
    for (const std::string& phase : seen) {
      text +=
          fmt::format("<span><i class=\"{}\"></i>{}</span> ", phase_class(phase), escaped(phase));
    }
    return text + "</p>\n";
  }

  std::string time_axis() const {
    constexpr int kTicks = 5;
    std::string text;
    for (int i = 0; i <= kTicks; ++i) {
      const double seconds = begin_ + seconds_ * i / kTicks;
      fmt::format_to(std::back_inserter(text),
                     "<text class=\"{}\" x=\"{:.1f}\" y=\"{}\">{:.4g} s</text>\n",
                     i == 0        ? "left"
                     : i == kTicks ? "right"
                                   : "middle",
                     x(seconds), kTimeAxis, seconds);
    }
    return text;
  }

  std::string class_rows() const {
    std::string text =
        "<h2>Classes</h2>\n<table>\n<tr><th>class</th><th>at the peak</th><th>at the end</th>"
        "</tr>\n";
    for (const MemoryClass c : all_memory_classes()) {
      const auto i = static_cast<std::size_t>(c);
      if (peak_.state.classes[i] == 0 && end_.classes[i] == 0) continue;
      text +=
          fmt::format("<tr><td><i class=\"{0}\"></i>{0}</td><td>{1}</td><td>{2}</td></tr>\n",
                      name_of(c), sized_text(peak_.state.classes[i]), sized_text(end_.classes[i]));
    }
    return text + fmt::format("<tr><td>sum</td><td>{}</td><td>{}</td></tr>\n</table>\n",
                              sized_text(peak_.total), sized_text(end_.total));
  }

  std::string label_rows(std::int64_t most) const {
    if (series_.kind == MemorySeries::Kind::log) {
      return "<p>A log has no labels; a trace (run.memory_trace) has.</p>\n";
    }
    std::string text = fmt::format(
        "<h2>At the peak: {}, {:.3f} s</h2>\n<table>\n<tr><th>label</th><th>class</th><th>unit"
        "</th><th>bytes</th><th>share</th></tr>\n",
        escaped(memory_report::place_text(place(peak_.place))), peak_.seconds);
    for (const auto& held : memory_report::largest_labels(series_, peak_.state, most)) {
      text += fmt::format(
          "<tr><td>{0}</td><td><i class=\"{1}\"></i>{1}</td><td>{2}</td><td>{3}</td><td>{4:.1f} %"
          "</td></tr>\n",
          escaped(held.label->name), name_of(held.label->memory_class), escaped(held.label->unit),
          sized_text(held.bytes),
          100.0 * static_cast<double>(held.bytes) /
              static_cast<double>(std::max<std::int64_t>(peak_.state.total, 1)));
    }
    return text + "</table>\n";
  }

  const MemorySeries& series_;
  MemoryPeak peak_;
  MemoryState end_;
  std::vector<PictureColumn> columns_;
  double begin_;    // of the time axis
  double seconds_;  // along it
  double most_;     // bytes at the top
};

}  // namespace

std::vector<PictureColumn> picture_columns(const MemorySeries& series, int count) {
  std::vector<PictureColumn> columns(static_cast<std::size_t>(count));
  const double first = series.places.front().seconds;  // later than 0 where lines were dropped
  const double width = std::max(series.end_seconds() - first, 1e-9) / count;
  const auto column_at = [&](double seconds) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>((seconds - first) / width), 0,
                                    count - 1);
  };
  MemoryState state;
  std::size_t next = 0;
  std::int32_t place = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    PictureColumn& column = columns[static_cast<std::size_t>(k)];
    column.classes = state.classes;
    column.total = state.total;
    for (; next < series.changes.size() && column_at(series.changes[next].seconds) <= k; ++next) {
      state.add(series, series.changes[next]);
      if (state.total <= column.total) continue;
      column.classes = state.classes;
      column.total = state.total;
    }
    // The place that takes most of the column.
    const double begin = first + width * static_cast<double>(k);
    double longest = -1;
    for (auto at = place; at < std::ssize(series.places); ++at) {
      const auto i = static_cast<std::size_t>(at);
      const double from = std::max(begin, series.places[i].seconds);
      if (from >= begin + width && longest >= 0) break;
      const double until =
          i + 1 < series.places.size() ? series.places[i + 1].seconds : begin + width;
      const double share = std::min(until, begin + width) - from;
      if (share > longest) {
        longest = share;
        column.place = at;
      }
      if (until <= begin) place = at + 1;
    }
  }
  return columns;
}

std::string memory_picture(const MemorySeries& series, std::int64_t most) {
  return Picture(series).page(most);
}

void save_memory_picture(const MemorySeries& series, std::int64_t most, const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown)) {
    ZERO_CHECK(!std::filesystem::equivalent(path, series.path, unknown),
               "{}: is what the picture is drawn from; give the picture another name", path);
    ZERO_CHECK(std::filesystem::is_regular_file(path, unknown),
               "{}: exists and is no regular file; give the path of a new file, or of an earlier "
               "picture",
               path);
    std::string begin(kPageBegin.size(), ' ');
    std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
    ZERO_CHECK(begin == kPageBegin,
               "{}: exists and is no picture of zero_memory; give another name, or remove it",
               path);
  }
  const std::string page = memory_picture(series, most);
  NewFile file(path + ".partial");
  file.write(std::as_bytes(std::span(page)));
  file.finish();
  file.rename(path);
}

}  // namespace zero
