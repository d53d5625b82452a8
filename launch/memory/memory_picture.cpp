// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "files/file_system.h"
#include "launch/data/new_file.h"
#include "launch/memory/memory_report.h"
#include "launch/memory/memory_text.h"
#include "launch/process/open_files.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/chart.h"
#include "launch/telemetry/page.h"

namespace zero {
namespace {

// The picture in its own units; the page scales it.
constexpr int kLeft = 76;
constexpr int kColumns = 908;  // one a unit
constexpr int kRight = kLeft + kColumns;
constexpr int kTop = 26;
constexpr int kBottom = 366;
constexpr int kPhases = 378;
constexpr int kTimeAxis = 414;

/// A colour for each class of memory and each phase by its name (a phase's first word), legible on
/// light paper and on dark.
constexpr std::string_view kStyle = R"(
.mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
.parameters { --of: #4269d0; } .gathered { --of: #6cc5b0; } .gradients { --of: #efb118; }
.optimizer { --of: #3ca951; } .activations { --of: #e8604c; } .communication { --of: #a463f2; }
.staging { --of: #8fb8f0; } .other { --of: #9c6b4e; }
.phase { --of: #8a929c; } .load { --of: #6f7f94; } .forward { --of: #3b82c4; }
.backward { --of: #d9822b; } .recompute { --of: #b8456b; } .update { --of: #2f9e6e; }
.step { --of: #5c6bc0; } .validation { --of: #8e5bb5; } .between { --of: #c3c9d1; }
.end { --of: #6b5d4d; }
)";

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
        most_(static_cast<double>(std::max<std::int64_t>(peak_.total, 1)) * 1.04) {
    for (const MemoryClass c : all_memory_classes()) {
      const auto has = [c](const PictureColumn& column) { return at(column.classes, c) > 0; };
      if (std::ranges::any_of(columns_, has)) drawn_.push_back(c);
    }
  }

  std::string page(std::int64_t labels) && {
    add("{}", page_begin("zero_memory", series_.path, memory_report::title(series_), kStyle));
    add("<p class=\"legend\">");
    for (const MemoryClass c : drawn_) legend("", name_of(c));
    add("</p>\n<svg viewBox=\"0 0 1000 426\" role=\"img\" aria-label=\"memory by class over "
        "time\">\n");
    byte_axis();
    // From the top down: each area covers what those below it have of the one before.
    for (auto c = drawn_.rbegin(); c != drawn_.rend(); ++c) area(*c);
    peak_mark();
    phases();
    time_axis();
    add("</svg>\n");
    phase_legend();
    class_rows();
    label_rows(labels);
    add("</body>\n</html>\n");
    return std::move(page_);
  }

 private:
  template <typename... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(page_), format, std::forward<Parts>(parts)...);
  }
  double x(double seconds) const { return kLeft + kColumns * (seconds - begin_) / seconds_; }
  double y(double bytes) const { return kBottom - (kBottom - kTop) * bytes / most_; }
  std::string place(std::int32_t number) const {
    return html_text(series_.places[static_cast<std::size_t>(number)].text());
  }

  void text(std::string_view anchor, double x, double y, std::string_view text) {
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", anchor, x, y, text);
  }
  void legend(std::string_view kind, std::string_view name) {
    add("<span><i class=\"{0}{1}\"></i>{1}</span> ", kind, name);
  }
  static std::string class_cell(MemoryClass c) {
    return fmt::format("<i class=\"{0}\"></i>{0}", name_of(c));
  }
  template <typename... Cells>
  void row(const Cells&... cells) {
    add("<tr>");
    (add("<td>{}</td>", cells), ...);
    add("</tr>\n");
  }

  /// Lines at round sizes of a binary unit.
  void byte_axis() {
    constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    const auto power = std::min<std::size_t>(static_cast<std::size_t>(std::log2(most_) / 10), 4);
    const double unit = std::exp2(10 * power);
    const double step = std::max(axis_step(most_ / unit), power == 0 ? 1 : 0.1);
    for (int i = 0; i * step * unit < most_; ++i) {
      page_ += grid_line(kLeft, kRight, y(i * step * unit),
                         fmt::format("{:.4g} {}", i * step, kUnits[power]));
    }
  }

  /// The sum of a class and those before it, down to the bottom.
  void area(MemoryClass c) {
    add("<path class=\"{}\" d=\"M{},{}", name_of(c), kLeft, kBottom);
    std::int64_t last = -1;
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      std::int64_t sum = 0;
      for (const MemoryClass each : all_memory_classes()) {
        if (each <= c) sum += at(columns_[k].classes, each);
      }
      if (sum != last) add("H{}V{:.1f}", kLeft + k, y(static_cast<double>(sum)));
      last = sum;
    }
    add("H{}V{}Z\"><title>{}: {} at the peak</title></path>\n", kRight, kBottom, name_of(c),
        size_text(at(peak_.state.classes, c)));
  }

  void peak_mark() {
    const double at = x(peak_.seconds);
    const bool to_left = at > kLeft + kColumns / 2.0;
    add("<line class=\"mark\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", at,
        kTop - 8, kBottom);
    text(to_left ? "right" : "left", to_left ? at - 5 : at + 5, kTop - 10,
         fmt::format("peak {}, {}", size_text(peak_.total), place(peak_.place)));
  }

  /// A rectangle for each run of columns of one step and phase.
  void phases() {
    for (auto from = columns_.begin(); from != columns_.end();) {
      const auto to = std::find_if(from, columns_.end(), [&](const PictureColumn& column) {
        return column.place != from->place;
      });
      const MemoryPlace& here = series_.places[static_cast<std::size_t>(from->place)];
      add("<rect class=\"phase {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"18\"><title>{}</title>"
          "</rect>\n",
          html_text(here.phase), kLeft + (from - columns_.begin()), kPhases, to - from,
          place(from->place));
      from = to;
    }
    text("right", kLeft - 8, kPhases + 13, "phase");
  }

  void phase_legend() {
    std::vector<std::string> seen;
    add("<p class=\"legend\">");
    for (const MemoryPlace& each : series_.places) {
      if (std::ranges::find(seen, each.phase) != seen.end()) continue;
      seen.push_back(each.phase);
      legend("phase ", html_text(each.phase));
    }
    add("</p>\n");
  }

  void time_axis() {
    constexpr int kTicks = 5;
    for (int i = 0; i <= kTicks; ++i) {
      const double seconds = begin_ + seconds_ * i / kTicks;
      const char* const anchor = i == 0 ? "left" : i == kTicks ? "right" : "middle";
      text(anchor, x(seconds), kTimeAxis, fmt::format("{:.4g} s", seconds));
    }
  }

  void class_rows() {
    add("<h2>Classes</h2>\n<table>\n<tr><th>class</th><th>at the peak</th><th>at the end</th>"
        "</tr>\n");
    for (const MemoryClass c : drawn_) {
      const std::int64_t most = at(peak_.state.classes, c);
      const std::int64_t last = at(end_.classes, c);
      if (most > 0 || last > 0) row(class_cell(c), size_text(most), size_text(last));
    }
    row("sum", size_text(peak_.total), size_text(end_.total));
    add("</table>\n");
  }

  void label_rows(std::int64_t most) {
    if (series_.of_log()) {
      add("<p>A log has no labels; a trace (run.memory_trace) has.</p>\n");
      return;
    }
    add("<h2>At the peak: {}, {:.3f} s</h2>\n<table>\n<tr><th>label</th><th>class</th><th>unit"
        "</th><th>bytes</th><th>share</th></tr>\n",
        place(peak_.place), peak_.seconds);
    for (const MemoryGrowth& held : growth_between({}, peak_.state.by_label(series_))) {
      if (most-- <= 0) break;
      row(html_text(held.label), class_cell(held.memory_class),
          html_text(unit_of(held.label, series_.units)), size_text(held.bytes),
          fmt::format("{:.1f} %", 100.0 * static_cast<double>(held.bytes) /
                                      static_cast<double>(peak_.state.total)));
    }
    add("</table>\n");
  }

  const MemorySeries& series_;
  MemoryPeak peak_;
  MemoryState end_;
  std::vector<PictureColumn> columns_;
  double begin_;    // of the time axis
  double seconds_;  // along it
  double most_;     // bytes at the top
  std::vector<MemoryClass> drawn_;
  std::string page_;
};

}  // namespace

std::vector<PictureColumn> picture_columns(const MemorySeries& series, int count) {
  std::vector<PictureColumn> columns(static_cast<std::size_t>(count));
  const double first = series.places.front().seconds;  // later than 0 where lines were dropped
  const double width = std::max(series.end_seconds() - first, 1e-9) / count;
  MemoryState state;
  auto change = series.changes.begin();
  auto place = series.places.begin();
  for (int k = 0; k < count; ++k) {
    PictureColumn& column = columns[static_cast<std::size_t>(k)];
    column = {.classes = state.classes, .total = state.total};
    // The last takes all that rounding leaves.
    const double end = k + 1 < count ? first + width * (k + 1) : series.end_seconds() + 1;
    for (; change != series.changes.end() && change->seconds < end; ++change) {
      state.add(series, *change);
      if (state.total > column.total) column = {.classes = state.classes, .total = state.total};
    }
    const double middle = first + width * (k + 0.5);
    while (place + 1 != series.places.end() && place[1].seconds <= middle) ++place;
    column.place = static_cast<std::int32_t>(place - series.places.begin());
  }
  return columns;
}

void save_memory_picture(const MemorySeries& series, std::int64_t most, const std::string& path) {
  ZERO_CHECK(!files::same_place(path, series.path),
             "--html: {} is what the picture is drawn from; give the picture another name", path);
  check_replaceable(path, page_mark("zero_memory"), "--html", "picture of zero_memory");
  write_whole_file(path, Picture(series).page(most));
}

}  // namespace zero
