// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/message_text.h"
#include "launch/memory/memory_text.h"
#include "launch/process/quantity.h"

namespace zero::memory_report {
namespace {

std::string line(std::string_view bytes, std::string_view text) {
  return fmt::format("  {:>12}  {}\n", bytes, text);
}
constexpr std::string_view kLabelHead = "class, label (its unit)";

/// The largest sum of each phase, in the order in which the phases first come.
std::string phase_table(const MemorySeries& series) {
  std::vector<std::pair<std::string, std::int64_t>> phases;
  std::int64_t total = 0;
  auto change = series.changes.begin();
  for (std::size_t i = 0; i < series.places.size(); ++i) {
    std::int64_t most = std::max(total, series.of_log() ? series.peaks[i] : 0);
    for (; change != series.changes.end() && std::cmp_equal(change->place, i); ++change) {
      total += change->bytes;
      most = std::max(most, total);
    }
    const std::string& phase = series.places[i].phase;
    auto known = std::ranges::find(phases, phase, &std::pair<std::string, std::int64_t>::first);
    if (known == phases.end()) known = phases.insert(known, {phase, most});
    known->second = std::max(known->second, most);
  }
  std::string text = "largest sum by phase\n";
  for (const auto& [phase, most] : phases)
    text += fmt::format("  {:<13} {:>12}\n", phase, size_text(most));
  return text;
}

/// The `most` labels that differ most between two states; `where`: "at the peaks".
std::string label_differences(std::vector<MemoryGrowth> labels, std::string_view where,
                              std::int64_t most, const std::vector<std::string>& units) {
  if (labels.empty()) return fmt::format("no label differs {}\n", where);
  std::ranges::stable_sort(labels, std::greater<>(),
                           [](const MemoryGrowth& each) { return std::abs(each.bytes); });
  const std::size_t shown = std::min(labels.size(), static_cast<std::size_t>(most));
  std::string text = fmt::format("labels that differ {}, {} of {}\n", where, shown, labels.size()) +
                     line("B - A", kLabelHead);
  for (std::size_t i = 0; i < shown; ++i) {
    const MemoryGrowth& each = labels[i];
    text += line(signed_size(each.bytes), labelled(each.memory_class, each.label, units));
  }
  return text;
}

}  // namespace

std::string title(const MemorySeries& series) {
  const auto first =
      std::ranges::find_if(series.places, [](const MemoryPlace& place) { return place.step > 0; });
  return fmt::format(
      "memory of {}, {}: {:.1f} s, {}{}",
      series.of_log() ? "the first rank" : fmt::format("rank {} of {}", series.rank, series.ranks),
      series.path, series.end_seconds(),
      first == series.places.end()
          ? "no step"
          : fmt::format("steps {} to {}", first->step, series.places.back().step),
      series.whole ? "" : "; the run goes on, or was cut off");
}

std::string summary(const MemorySeries& series, std::int64_t most) {
  const MemoryPeak peak = peak_of(series);
  const MemoryState end = end_of(series);
  const std::array<ClassColumn, 2> columns{
      {{"at the peak", peak.state.classes, peak.total}, {"at the end", end.classes, end.total}}};
  std::string text = title(series) + class_table("class", columns);
  text += fmt::format("\npeak of the sum: {}, at {} ({:.3f} s)\n", size_text(peak.total),
                      series.places[static_cast<std::size_t>(peak.place)].text(), peak.seconds);
  if (series.device_bytes > 0) {
    const auto device = static_cast<double>(series.device_bytes);
    text += fmt::format("  of {} of the device: {:.1f} %\n", bytes_text(device),
                        100.0 * static_cast<double>(peak.total) / device);
  }
  text += phase_table(series);
  if (series.of_log()) return text + "labels: none in a log; run.memory_trace FILE has them\n";
  const std::vector<MemoryGrowth> held = growth_between({}, peak.state.by_label(series));
  const std::size_t shown = std::min(held.size(), static_cast<std::size_t>(most));
  text += fmt::format("labels at the peak, the largest {} of {}\n", shown, held.size()) +
          line("bytes", kLabelHead);
  for (std::size_t i = 0; i < shown; ++i) {
    text +=
        line(size_text(held[i].bytes), labelled(held[i].memory_class, held[i].label, series.units));
  }
  return text;
}

std::string difference(const MemorySeries& a, const MemorySeries& b, std::int64_t most) {
  const MemoryPeak peak_a = peak_of(a);
  const MemoryPeak peak_b = peak_of(b);
  const MemoryState end_a = end_of(a);
  const MemoryState end_b = end_of(b);
  const std::array<ClassColumn, 4> columns{{{"A, peak", peak_a.state.classes, peak_a.total},
                                            {"B, peak", peak_b.state.classes, peak_b.total},
                                            {"A, end", end_a.classes, end_a.total},
                                            {"B, end", end_b.classes, end_b.total}}};
  std::vector<std::string> units = b.units;
  units.insert(units.end(), a.units.begin(), a.units.end());
  const auto labels = [&](const MemoryState& of_a, const MemoryState& of_b,
                          std::string_view where) {
    return label_differences(growth_between(of_a.by_label(a), of_b.by_label(b)), where, most,
                             units);
  };
  return fmt::format("A: {}\nB: {}{}\nB - A: {} at the peaks, {} at the ends\n", title(a), title(b),
                     class_table("class", columns), signed_size(peak_b.total - peak_a.total),
                     signed_size(end_b.total - end_a.total)) +
         labels(peak_a.state, peak_b.state, "at the peaks") + labels(end_a, end_b, "at the ends");
}

Leaks leaks(const MemorySeries& series, std::int64_t threshold) {
  const std::vector<MemoryMoment> moments = moments_of(series);
  std::string text = title(series) + "\n";
  if (moments.size() < MemoryMonitor::kLeastMoments) {
    return {false,
            text + fmt::format("{}: too few to tell growth from a warm-up; "
                               "expected at least {}\n",
                               counted(std::ssize(moments), "step"), MemoryMonitor::kLeastMoments)};
  }
  const std::vector<MemoryGrowth> grown = MemoryMonitor::leaks_of(moments, threshold);
  if (grown.empty()) {
    return {false,
            text + fmt::format("nothing kept growing by {} or more\n", size_text(threshold))};
  }
  text += "kept growing from step to step\n" + line("growth", kLabelHead);
  for (const MemoryGrowth& each : grown) {
    text += line(signed_size(each.bytes),
                 fmt::format("{}, {} a step", labelled(each.memory_class, each.label, series.units),
                             bytes_text(each.bytes_per_moment)));
  }
  return {true, std::move(text)};
}

}  // namespace zero::memory_report
