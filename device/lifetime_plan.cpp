// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/lifetime_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

/// Far below what 64 bits count: offsets and ends never overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

bool meet(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

/// The lowest offset at which `bytes` overlap none of `taken`, which are ranges in any order.
std::int64_t first_fit(std::int64_t bytes,
                       std::vector<std::pair<std::int64_t, std::int64_t>>& taken) {
  std::sort(taken.begin(), taken.end());
  std::int64_t offset = 0;
  for (const auto& [from, to] : taken) {
    if (offset + bytes <= from) break;
    offset = std::max(offset, round_up(to, kPlaceAlignment));
  }
  return offset;
}

}  // namespace

LifetimePlaces place_lifetimes(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return lifetimes[a].bytes > lifetimes[b].bytes;
  });
  LifetimePlaces places{.offsets = std::vector<std::int64_t>(lifetimes.size())};
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  for (auto own = order.begin(); own != order.end(); ++own) {
    taken.clear();
    for (auto other = order.begin(); other != own; ++other) {
      if (!meet(lifetimes[*own], lifetimes[*other])) continue;
      const std::int64_t begin = places.offsets[*other];
      taken.emplace_back(begin, begin + lifetimes[*other].bytes);
    }
    const std::int64_t offset = first_fit(lifetimes[*own].bytes, taken);
    places.offsets[*own] = offset;
    places.total = std::max(places.total, offset + lifetimes[*own].bytes);
  }
  return places;
}

void LifetimePlan::add(std::string name, std::int64_t bytes, int first, int last) {
  ZERO_CHECK(bytes > 0, "lifetime plan: \"{}\" has {} bytes, expected at least 1", name, bytes);
  ZERO_CHECK(first <= last,
             "lifetime plan: \"{}\" lives from step {} to step {}; the last step must not lie "
             "before the first",
             name, first, last);
  ZERO_CHECK(!numbers_.contains(name),
             "lifetime plan: \"{}\" is added twice; each tensor needs a name of its own", name);
  ZERO_CHECK(bytes <= kMostBytes - sum_,
             "lifetime plan: with \"{}\" of {} bytes there are more than {} in all", name, bytes,
             kMostBytes);
  sum_ += bytes;
  numbers_.emplace(name, places_.size());
  places_.push_back({.name = std::move(name), .bytes = bytes, .first = first, .last = last});
  placed_ = false;
}

void LifetimePlan::place() {
  std::vector<Lifetime> lifetimes;
  for (const Place& each : places_) lifetimes.push_back({each.bytes, each.first, each.last});
  const LifetimePlaces found = place_lifetimes(lifetimes);
  for (std::size_t i = 0; i < places_.size(); ++i) places_[i].offset = found.offsets[i];
  total_ = found.total;
  placed_ = true;
}

const LifetimePlan::Place& LifetimePlan::at(std::string_view name) const {
  check_placed();
  const auto found = numbers_.find(name);
  ZERO_CHECK(found != numbers_.end(), "lifetime plan: there is no \"{}\" among its {} tensors",
             name, places_.size());
  return places_[found->second];
}

std::int64_t LifetimePlan::total() const {
  check_placed();
  return total_;
}

void LifetimePlan::check_placed() const {
  ZERO_CHECK(placed_,
             "lifetime plan: tensors were added after the last place(); call place() before their "
             "offsets or the total are read");
}

LifetimePlan::Peak LifetimePlan::peak() const {
  std::map<std::int64_t, std::int64_t> changes;  // of the bytes alive, by step
  for (const Place& each : places_) {
    changes[each.first] += each.bytes;
    changes[std::int64_t{each.last} + 1] -= each.bytes;
  }
  Peak peak;
  std::int64_t alive = 0;
  for (const auto& [step, change] : changes) {
    alive += change;
    if (alive > peak.bytes) peak = {.bytes = alive, .step = static_cast<int>(step), .alive = {}};
  }
  for (const Place& each : places_) {
    if (each.first <= peak.step && peak.step <= each.last) peak.alive.push_back(each);
  }
  std::stable_sort(peak.alive.begin(), peak.alive.end(),
                   [](const Place& a, const Place& b) { return a.bytes > b.bytes; });
  return peak;
}

}  // namespace zero
