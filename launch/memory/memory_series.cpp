// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_series.h"

#include <fmt/format.h>

#include <algorithm>

namespace zero {
namespace {

/// The step of each change's place.
std::int64_t step_of_change(const MemorySeries& series, const MemorySeries::Change& change) {
  return series.places[static_cast<std::size_t>(change.place)].step;
}

/// The steps of a series whose end is known or is the series' end, in order.
std::vector<std::int64_t> steps_in_series(const MemorySeries& series) {
  std::vector<std::int64_t> steps;
  for (const MemorySeries::Place& place : series.places) {
    if (place.step > 0 && (steps.empty() || steps.back() != place.step)) {
      steps.push_back(place.step);
    }
  }
  return steps;
}

/// How many changes come before the run's end, behind which it gives its memory back.
std::size_t changes_to_end(const MemorySeries& series) {
  const auto end = std::ranges::find(series.places, "end", &MemorySeries::Place::phase);
  const auto at = end - series.places.begin();
  const auto after = std::ranges::find_if(series.changes, [&](const MemorySeries::Change& change) {
    // A part of a trace may begin there, with what is charged.
    return change.place >= at && (at > 0 || change.seconds > end->seconds);
  });
  return static_cast<std::size_t>(after - series.changes.begin());
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

void replay(const MemorySeries& series,
            const std::function<void(const MemoryState& state, std::size_t change)>& visit) {
  MemoryState state;
  state.labels.resize(series.labels.size());
  for (std::size_t i = 0; i < series.changes.size(); ++i) {
    state.add(series, series.changes[i]);
    visit(state, i);
  }
}

MemoryPeak peak_of(const MemorySeries& series) {
  MemoryPeak peak;
  peak.state.labels.resize(series.labels.size());
  // The first of the largest; a second pass for its labels, so that one state is copied.
  std::size_t at = 0;
  std::int64_t most = 0;
  replay(series, [&](const MemoryState& state, std::size_t change) {
    if (state.total <= most) return;
    most = state.total;
    at = change + 1;
  });
  for (std::size_t i = 0; i < at; ++i) peak.state.add(series, series.changes[i]);
  peak.total = most;
  if (at > 0) {
    peak.seconds = series.changes[at - 1].seconds;
    peak.place = series.changes[at - 1].place;
  }
  for (std::size_t i = 0; i < series.places.size(); ++i) {
    if (series.places[i].peak <= peak.total) continue;
    peak.total = series.places[i].peak;
    peak.seconds = series.places[i].seconds;
    peak.place = static_cast<std::int32_t>(i);
  }
  return peak;
}

MemoryState end_of(const MemorySeries& series) {
  MemoryState state;
  state.labels.resize(series.labels.size());
  const std::size_t count = changes_to_end(series);
  for (std::size_t i = 0; i < count; ++i) state.add(series, series.changes[i]);
  return state;
}

std::vector<MemoryMoment> moments_of(const MemorySeries& series) {
  const std::vector<std::int64_t> steps = steps_in_series(series);
  if (steps.empty()) return {};
  std::vector<bool> changes(series.labels.size(), false);
  for (const MemorySeries::Change& change : series.changes) {
    if (step_of_change(series, change) > steps.front()) {
      changes[static_cast<std::size_t>(change.label)] = true;
    }
  }
  std::vector<MemoryMoment> moments;
  MemoryState state;
  state.labels.resize(series.labels.size());
  const std::size_t count = changes_to_end(series);
  std::size_t next = 0;
  for (const std::int64_t step : steps) {
    double seconds = 0;
    for (; next < count; ++next) {
      const MemorySeries::Change& change = series.changes[next];
      if (step_of_change(series, change) > step) break;
      state.add(series, change);
      seconds = change.seconds;
    }
    MemoryMoment moment{.label = fmt::format("step {}", step),
                        .seconds = seconds,
                        .memory = {},
                        .reserved = 0,
                        .device = {}};
    moment.memory.current = state.classes;
    moment.memory.total = state.total;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      if (!changes[i] || state.labels[i] == 0) continue;
      const MemorySeries::Label& label = series.labels[i];
      moment.memory.labels[fmt::format("{}/{}", name_of(label.memory_class), label.name)] +=
          state.labels[i];
    }
    moments.push_back(std::move(moment));
  }
  return moments;
}

}  // namespace zero
