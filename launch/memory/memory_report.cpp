// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "launch/memory/growth_watch.h"
#include "launch/telemetry/output.h"

namespace zero::memory_report {
namespace {

std::string sized(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

/// "+1.00 KiB", "-512 B".
std::string signed_size(std::int64_t bytes) {
  return fmt::format("{}{}", bytes > 0 ? "+" : "", sized(bytes));
}

/// A row of a table of labels, and its titles.
std::string label_line(std::string_view bytes, std::string_view label) {
  return fmt::format("  {:>13}  {}\n", bytes, label);
}
std::string label_head(std::string_view bytes) {
  return label_line(bytes, "class, label (its unit)");
}

/// Rows of classes that have bytes in one of the columns, and their sum.
template <std::size_t kColumns>
std::string class_table(const std::array<const char*, kColumns>& heads,
                        const std::array<BytesByClass, kColumns>& columns,
                        const std::array<std::int64_t, kColumns>& sums) {
  std::string text = fmt::format("  {:<14}", "class");
  for (const char* head : heads) text += fmt::format(" {:>14}", head);
  text += '\n';
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    const bool any =
        std::ranges::any_of(columns, [&](const BytesByClass& column) { return column[i] != 0; });
    if (!any) continue;
    text += fmt::format("  {:<14}", name_of(c));
    for (const BytesByClass& column : columns) text += fmt::format(" {:>14}", sized(column[i]));
    text += '\n';
  }
  text += fmt::format("  {:<14}", "sum");
  for (const std::int64_t sum : sums) text += fmt::format(" {:>14}", sized(sum));
  return text + "\n";
}

/// The largest sum of each phase, in the order in which the phases first come.
std::string phase_table(const MemorySeries& series) {
  std::vector<std::string> order;
  std::map<std::string, std::int64_t> most;
  const auto meet = [&](const MemorySeries::Place& place, std::int64_t total) {
    const auto [entry, is_new] = most.try_emplace(place.phase, total);
    if (is_new) order.push_back(place.phase);
    entry->second = std::max(entry->second, total);
  };
  std::size_t next = 0;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < series.places.size(); ++i) {
    meet(series.places[i], std::max(total, series.places[i].peak));
    for (; next < series.changes.size(); ++next) {
      if (static_cast<std::size_t>(series.changes[next].place) != i) break;
      total += series.changes[next].bytes;
      meet(series.places[i], total);
    }
  }
  std::string text = "largest sum by phase\n";
  for (const std::string& phase : order) {
    text += fmt::format("  {:<14} {:>14}\n", phase, sized(most[phase]));
  }
  return text;
}

/// The bytes of a state by class and name, over which two series are compared.
MemoryMoment moment_of(const MemorySeries& series, const MemoryState& state) {
  MemoryMoment moment{
      .label = series.path, .seconds = 0, .memory = {}, .reserved = 0, .device = {}};
  moment.memory.current = state.classes;
  moment.memory.total = state.total;
  for (std::size_t i = 0; i < state.labels.size(); ++i) {
    const MemorySeries::Label& label = series.labels[i];
    if (state.labels[i] == 0) continue;
    moment.memory.labels[fmt::format("{}/{}", name_of(label.memory_class), label.name)] +=
        state.labels[i];
  }
  return moment;
}

/// The unit of a label, in whichever series knows it.
std::string unit_in(const MemorySeries& series, MemoryClass memory_class, const std::string& name) {
  for (const MemorySeries::Label& label : series.labels) {
    if (label.memory_class == memory_class && label.name == name) return label.unit;
  }
  return "";
}

/// A series in one of its states.
struct SeriesAt {
  const MemorySeries& series;
  const MemoryState& state;
};

/// The `most` labels that differ most between the states of two series; `where`: "at the peaks".
std::string label_differences(const SeriesAt& a, const SeriesAt& b, std::string_view where,
                              std::int64_t most) {
  std::vector<MemoryGrowth> labels =
      MemoryMonitor::compare(moment_of(a.series, a.state), moment_of(b.series, b.state));
  if (labels.empty()) return fmt::format("no label differs {}\n", where);
  std::ranges::stable_sort(labels, std::greater<>(),
                           [](const MemoryGrowth& each) { return std::abs(each.bytes); });
  const std::size_t shown = std::min(labels.size(), static_cast<std::size_t>(most));
  std::string text = fmt::format("labels that differ {}, {} of {}\n", where, shown, labels.size()) +
                     label_head("B - A");
  for (std::size_t i = 0; i < shown; ++i) {
    const MemoryGrowth& each = labels[i];
    std::string unit = unit_in(b.series, each.memory_class, each.label);
    if (unit.empty()) unit = unit_in(a.series, each.memory_class, each.label);
    text += label_line(signed_size(each.bytes), labelled(each.memory_class, each.label, unit));
  }
  return text;
}

}  // namespace

std::string place_text(const MemorySeries::Place& place) {
  if (place.step == 0) return place.phase;
  if (place.phase == "step") return fmt::format("step {}", place.step);
  return fmt::format("step {}, {}", place.step, place.phase);
}

std::string title(const MemorySeries& series) {
  std::int64_t first = 0;
  for (const MemorySeries::Place& place : series.places) {
    if (first == 0) first = place.step;
  }
  const std::int64_t last = series.places.empty() ? 0 : series.places.back().step;
  std::string text = fmt::format(
      "memory of rank {} of {}, {}: {:.1f} s, {}", series.rank, series.ranks, series.path,
      series.end_seconds(), last == 0 ? "no step" : fmt::format("steps {} to {}", first, last));
  if (series.kind == MemorySeries::Kind::log) {
    text = fmt::format("memory of the first rank, {}: {:.1f} s of steps {} to {}", series.path,
                       series.end_seconds(), first, last);
  }
  if (series.missed > 0) text += fmt::format("; {} events only as sums", series.missed);
  if (!series.whole) text += "; the run goes on, or was cut off";
  return text;
}

std::vector<HeldLabel> largest_labels(const MemorySeries& series, const MemoryState& state,
                                      std::int64_t most) {
  std::vector<HeldLabel> held;
  for (std::size_t i = 0; i < state.labels.size(); ++i) {
    if (state.labels[i] > 0) held.push_back({&series.labels[i], state.labels[i]});
  }
  std::ranges::stable_sort(held, std::greater<>(), &HeldLabel::bytes);
  if (std::ssize(held) > most) held.resize(static_cast<std::size_t>(most));
  return held;
}

std::string summary(const MemorySeries& series, std::int64_t most) {
  const MemoryPeak peak = peak_of(series);
  const MemoryState end = end_of(series);
  std::string text = title(series) + "\n";
  text += class_table<2>({"at the peak", "at the end"}, {peak.state.classes, end.classes},
                         {peak.total, end.total});
  const MemorySeries::Place& place = series.places[static_cast<std::size_t>(peak.place)];
  text += fmt::format("peak of the sum: {}, at {} ({:.3f} s)\n", sized(peak.total),
                      place_text(place), peak.seconds);
  if (series.device_bytes > 0) {
    text += fmt::format(
        "  of {} of the device: {:.1f} %\n", sized(series.device_bytes),
        100.0 * static_cast<double>(peak.total) / static_cast<double>(series.device_bytes));
  }
  text += phase_table(series);
  if (series.kind == MemorySeries::Kind::log) {
    return text + "labels: none in a log; run.memory_trace FILE has them\n";
  }
  const auto held = largest_labels(series, peak.state, most);
  const auto all = std::ranges::count_if(peak.state.labels, [](auto bytes) { return bytes > 0; });
  text += fmt::format("labels at the peak, the largest {} of {}\n", held.size(), all);
  text += label_head("bytes");
  for (const HeldLabel& each : held) {
    const MemorySeries::Label& label = *each.label;
    text += label_line(sized(each.bytes), labelled(label.memory_class, label.name, label.unit));
  }
  return text;
}

std::string difference(const MemorySeries& a, const MemorySeries& b, std::int64_t most) {
  const MemoryPeak peak_a = peak_of(a);
  const MemoryPeak peak_b = peak_of(b);
  const MemoryState end_a = end_of(a);
  const MemoryState end_b = end_of(b);
  std::string text = fmt::format("A: {}\nB: {}\n", title(a), title(b));
  text += class_table<4>({"A, peak", "B, peak", "A, end", "B, end"},
                         {peak_a.state.classes, peak_b.state.classes, end_a.classes, end_b.classes},
                         {peak_a.total, peak_b.total, end_a.total, end_b.total});
  text +=
      fmt::format("B - A: {} at the peaks, {} at the ends\n",
                  signed_size(peak_b.total - peak_a.total), signed_size(end_b.total - end_a.total));
  text += label_differences({a, peak_a.state}, {b, peak_b.state}, "at the peaks", most);
  return text + label_differences({a, end_a}, {b, end_b}, "at the ends", most);
}

Leaks leaks(const MemorySeries& series, std::int64_t threshold) {
  constexpr std::size_t kFew = 16;  // MemoryMonitor::leaks_of() finds nothing in fewer
  const std::vector<MemoryMoment> moments = moments_of(series);
  std::string text = title(series) + "\n";
  if (moments.size() < kFew) {
    return {false, text + fmt::format("{} step(s) are too few to tell growth from a warm-up; "
                                      "expected at least {}\n",
                                      moments.size(), kFew)};
  }
  const std::vector<MemoryGrowth> grown = MemoryMonitor::leaks_of(moments, threshold);
  if (grown.empty()) {
    return {false, text + fmt::format("nothing kept growing by {} or more\n", sized(threshold))};
  }
  text += "kept growing from step to step\n" + label_head("growth");
  for (const MemoryGrowth& each : grown) {
    const std::string unit = unit_in(series, each.memory_class, each.label);
    text += label_line(signed_size(each.bytes),
                       fmt::format("{}, {} a step", labelled(each.memory_class, each.label, unit),
                                   bytes_text(each.bytes_per_moment)));
  }
  return {true, std::move(text)};
}

}  // namespace zero::memory_report
