// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_series.h"

#include <fmt/format.h>

#include <algorithm>

namespace zero {
namespace {

std::int64_t step_of(const MemorySeries& series, const MemorySeries::Change& change) {
  return series.places[static_cast<std::size_t>(change.place)].step;
}

/// How many changes come before the run's end, behind which it gives its memory back.
std::size_t changes_to_end(const MemorySeries& series) {
  const auto end = std::ranges::find(series.places, "end", &MemoryPlace::phase);
  const auto at = end - series.places.begin();
  const auto after = std::ranges::find_if(series.changes, [&](const MemorySeries::Change& change) {
    // A part of a trace may begin there, with what is charged.
    return change.place >= at && (at > 0 || change.seconds > end->seconds);
  });
  return static_cast<std::size_t>(after - series.changes.begin());
}

MemoryState state_behind(const MemorySeries& series, std::size_t changes) {
  MemoryState state{.labels = std::vector<std::int64_t>(series.labels.size())};
  for (std::size_t i = 0; i < changes; ++i) state.add(series, series.changes[i]);
  return state;
}

}  // namespace

double MemorySeries::end_seconds() const {
  const double placed = places.empty() ? 0 : places.back().seconds;
  return changes.empty() ? placed : std::max(placed, changes.back().seconds);
}

void MemoryState::add(const MemorySeries& series, const MemorySeries::Change& change) {
  labels.resize(series.labels.size());
  const auto label = static_cast<std::size_t>(change.label);
  labels[label] += change.bytes;
  classes[static_cast<std::size_t>(series.labels[label].memory_class)] += change.bytes;
  total += change.bytes;
}

BytesByLabel MemoryState::by_label(const MemorySeries& series) const {
  BytesByLabel bytes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != 0) bytes[series.labels[i].key()] = labels[i];
  }
  return bytes;
}

MemoryPeak peak_of(const MemorySeries& series) {
  MemoryPeak peak;
  std::int64_t total = 0;
  std::size_t changes = 0;  // up to the first of the largest sums
  for (std::size_t i = 0; i < series.changes.size(); ++i) {
    const MemorySeries::Change& change = series.changes[i];
    total += change.bytes;
    if (total <= peak.total) continue;
    peak = {.total = total, .seconds = change.seconds, .place = change.place};
    changes = i + 1;
  }
  peak.state = state_behind(series, changes);
  for (std::size_t i = 0; i < series.peaks.size(); ++i) {
    if (series.peaks[i] <= peak.total) continue;
    peak.total = series.peaks[i];
    peak.seconds = series.places[i].seconds;
    peak.place = static_cast<std::int32_t>(i);
  }
  return peak;
}

MemoryState end_of(const MemorySeries& series) {
  return state_behind(series, changes_to_end(series));
}

std::vector<MemoryMoment> moments_of(const MemorySeries& series) {
  std::vector<std::int64_t> steps;
  for (const MemoryPlace& place : series.places) {
    if (place.step > 0 && (steps.empty() || steps.back() != place.step)) {
      steps.push_back(place.step);
    }
  }
  std::vector<bool> constant(series.labels.size(), true);
  for (const MemorySeries::Change& change : series.changes) {
    if (!steps.empty() && step_of(series, change) > steps.front()) {
      constant[static_cast<std::size_t>(change.label)] = false;
    }
  }
  std::vector<MemoryMoment> moments;
  MemoryState state;
  std::size_t next = 0;
  const std::size_t count = changes_to_end(series);
  for (const std::int64_t step : steps) {
    for (; next < count && step_of(series, series.changes[next]) <= step; ++next) {
      state.add(series, series.changes[next]);
    }
    MemoryState changing = state;
    for (std::size_t i = 0; i < changing.labels.size(); ++i) {
      if (constant[i]) changing.labels[i] = 0;
    }
    MemoryMoment& moment =
        moments.emplace_back(MemoryMoment{.label = fmt::format("step {}", step)});
    moment.memory.total = state.total;
    moment.memory.labels = changing.by_label(series);
  }
  return moments;
}

}  // namespace zero
