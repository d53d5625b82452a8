// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_monitor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/seconds_since.h"

namespace zero {
namespace {

constexpr std::size_t kFewestParts = 4;
constexpr std::size_t kMostParts = 8;
constexpr std::size_t kMomentsOfAPart = 3;

using Series = std::span<const std::int64_t>;

/// A part of a series: its least bytes, where they are first, and its most bytes.
struct Part {
  std::size_t lowest = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

Part part_of(Series series, std::size_t begin, std::size_t end) {
  const Series own = series.subspan(begin, end - begin);
  const auto [least, most] = std::ranges::minmax_element(own);
  return {.lowest = begin + static_cast<std::size_t>(least - own.begin()),
          .least = *least,
          .most = *most};
}

/// More parts make a rise in all of them by chance rarer; each needs some moments, so that it has
/// the lowest point of a sawtooth.
std::vector<Part> parts_of(Series series) {
  const std::size_t count = std::clamp(series.size() / kMomentsOfAPart, kFewestParts, kMostParts);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < count; ++i) {
    parts.push_back(part_of(series, series.size() * i / count, series.size() * (i + 1) / count));
  }
  return parts;
}

/// Growth that goes on from the begin of `series` to its end. The floor must rise from each part to
/// the next, and the last part have the most bytes, which it has not where a tooth began higher.
std::optional<MemoryGrowth> steady_growth(Series series) {
  const std::vector<Part> parts = parts_of(series);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].least <= parts[i - 1].least) return std::nullopt;
    if (parts[i - 1].most >= parts.back().most) return std::nullopt;
  }
  const Part& first = parts.front();
  const Part& last = parts.back();
  const double rate = static_cast<double>(last.least - first.least) /
                      static_cast<double>(last.lowest - first.lowest);
  const auto rise = std::llround(rate * static_cast<double>(series.size() - 1));
  const Part all = part_of(series, 0, series.size());
  return MemoryGrowth{.label = {},
                      .bytes = std::min<std::int64_t>(rise, all.most - all.least),
                      .bytes_per_moment = rate};
}

/// The growth of `series`, or of the longest of its last 1/2, 1/4, ... that grows above all before
/// it.
std::optional<MemoryGrowth> leak_in(Series series) {
  for (Series late = series; late.size() >= MemoryMonitor::kLeastMoments;
       late = late.last(late.size() / 2)) {
    const Series before = series.first(series.size() - late.size());
    const auto growth = steady_growth(late);
    if (!growth) continue;
    if (before.empty() || std::ranges::max(before) < parts_of(late).back().least) return growth;
  }
  return std::nullopt;
}

MemoryGrowth named(std::string_view key, MemoryGrowth growth) {
  MemoryLabel label = MemoryLabel::of_key(key);
  growth.memory_class = label.memory_class;
  growth.label = std::move(label.name);
  return growth;
}

}  // namespace

MemoryMonitor::MemoryMonitor(Device& device)
    : device_(device), begin_(std::chrono::steady_clock::now()) {
  device_.ledger().begin_peak();
}

const MemoryMoment& MemoryMonitor::snapshot(std::string_view label) {
  MemoryMoment moment{.label = std::string(label),
                      .seconds = seconds_since(begin_),
                      .memory = device_.ledger().snapshot()};
  device_.ledger().begin_peak();
  moment.reserved = device_.reserved_bytes();
  moment.device = device_.capacity();
  return moments_.emplace_back(std::move(moment));
}

std::vector<MemoryGrowth> growth_between(const BytesByLabel& a, BytesByLabel b) {
  for (const auto& [key, bytes] : a) b[key] -= bytes;
  std::vector<MemoryGrowth> grown;
  for (const auto& [key, bytes] : b) {
    if (bytes == 0) continue;
    const auto rate = static_cast<double>(bytes);
    grown.push_back(named(key, {.label = {}, .bytes = bytes, .bytes_per_moment = rate}));
  }
  std::ranges::stable_sort(grown, std::ranges::greater(), &MemoryGrowth::bytes);
  return grown;
}

std::vector<MemoryGrowth> MemoryMonitor::leaks(std::int64_t threshold) const {
  return leaks_of(moments_, threshold);
}

std::vector<MemoryGrowth> MemoryMonitor::leaks_of(const std::vector<MemoryMoment>& moments,
                                                  std::int64_t threshold) {
  std::map<std::string, std::vector<std::int64_t>> series;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    for (const auto& [key, bytes] : moments[i].memory.labels) {
      series.try_emplace(key, moments.size()).first->second[i] = bytes;
    }
  }
  std::vector<MemoryGrowth> leaks;
  for (const auto& [key, bytes] : series) {
    const auto growth = leak_in(bytes);
    if (growth && growth->bytes >= threshold) leaks.push_back(named(key, *growth));
  }
  std::ranges::stable_sort(leaks, std::ranges::greater(), &MemoryGrowth::bytes_per_moment);
  return leaks;
}

}  // namespace zero
