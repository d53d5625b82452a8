// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/lifetime_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/checked_math.h"
#include "base/consecutive.h"
#include "base/error.h"

namespace zero {
namespace {

/// Far below what 64 bits count: offsets and ends never overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

bool meet(const LifeSpan& a, const LifeSpan& b) { return a.first <= b.last && b.first <= a.last; }

bool meet(const std::vector<LifeSpan>& a, const std::vector<LifeSpan>& b) {
  if (!meet(LifeSpan{a.front().first, a.back().last}, LifeSpan{b.front().first, b.back().last})) {
    return false;
  }
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (meet(*x, *y)) return true;
    x->last < y->last ? ++x : ++y;
  }
  return false;
}

using Order = std::vector<std::size_t>;  // numbers of lifetimes

template <typename Rank>
Order by_falling(const std::vector<Lifetime>& lifetimes, const Rank& rank) {
  Order order = consecutive(std::size_t{0}, lifetimes.size());
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank(lifetimes[a]) > rank(lifetimes[b]);
  });
  return order;
}

Order largest_first(const std::vector<Lifetime>& lifetimes) {
  return by_falling(lifetimes, [](const Lifetime& each) { return each.bytes; });
}

/// Stacks what lives within another. Those of several spans come last.
Order longest_first(const std::vector<Lifetime>& lifetimes) {
  return by_falling(lifetimes, [](const Lifetime& each) {
    const auto& [first, last] = each.spans.front();
    return std::pair(each.spans.size() == 1 ? std::int64_t{last} - first + 1 : 0, each.bytes);
  });
}

/// A range of bytes that a lifetime has.
struct Taken {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const Lifetime* by = nullptr;
};

LifetimePlaces first_fit(const std::vector<Lifetime>& lifetimes, const Order& order,
                         std::int64_t alignment) {
  LifetimePlaces places{.offsets = std::vector<std::int64_t>(lifetimes.size())};
  std::vector<Taken> taken;  // in order of their begin
  for (const std::size_t number : order) {
    const Lifetime& own = lifetimes[number];
    std::int64_t offset = 0;
    for (const Taken& other : taken) {
      if (other.end <= offset || !meet(own.spans, other.by->spans)) continue;
      if (offset + own.bytes <= other.begin) break;
      offset = round_up(other.end, alignment);
    }
    const std::int64_t end = offset + own.bytes;
    taken.insert(std::ranges::upper_bound(taken, offset, std::less<>(), &Taken::begin),
                 {offset, end, &own});
    places.offsets[number] = offset;
    places.total = std::max(places.total, end);
  }
  return places;
}

/// Moves the lifetime that ends last to the front.
void raise_last(Order& order, const std::vector<Lifetime>& lifetimes,
                const LifetimePlaces& places) {
  const auto last = std::ranges::find_if(order, [&](std::size_t number) {
    return places.offsets[number] + lifetimes[number].bytes == places.total;
  });
  std::rotate(order.begin(), last, last + 1);
}

/// Orders that are tried: fewer of many lifetimes, which take longer.
std::size_t tries_of(std::size_t lifetimes) {
  constexpr std::size_t kMost = 8;
  constexpr std::size_t kPairs = 1'000'000;
  return std::clamp<std::size_t>(kPairs / (lifetimes * lifetimes), 1, kMost);
}

/// The sums of the bytes alive, by the step at which each begins.
std::map<std::int64_t, std::int64_t> sums_of(const std::vector<LifetimePlan::Place>& places) {
  std::map<std::int64_t, std::int64_t> sums;
  for (const LifetimePlan::Place& each : places) {
    for (const LifeSpan& span : each.spans) {
      sums[span.first] += each.bytes;
      sums[std::int64_t{span.last} + 1] -= each.bytes;
    }
  }
  std::int64_t alive = 0;
  for (auto& [step, sum] : sums) sum = alive += sum;
  return sums;
}

}  // namespace

LifetimePlaces place_lifetimes(const std::vector<Lifetime>& lifetimes) {
  return first_fit(lifetimes, largest_first(lifetimes), kPlaceAlignment);
}

bool LifetimePlan::Place::alive_at(int step) const {
  return std::ranges::any_of(
      spans, [&](const LifeSpan& span) { return span.first <= step && step <= span.last; });
}

void LifetimePlan::add(std::string name, std::int64_t bytes, int first, int last) {
  add(std::move(name), bytes, {{first, last}});
}

void LifetimePlan::add(std::string name, std::int64_t bytes, std::vector<LifeSpan> spans) {
  ZERO_CHECK(bytes > 0, "lifetime plan: \"{}\" has {} bytes, expected at least 1", name, bytes);
  ZERO_CHECK(!spans.empty(), "lifetime plan: \"{}\" lives at no step", name);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto& [first, last] = spans[i];
    ZERO_CHECK(first <= last,
               "lifetime plan: \"{}\" lives from step {} to step {}; the last step must not lie "
               "before the first",
               name, first, last);
    ZERO_CHECK(
        i == 0 || spans[i - 1].last < first,
        "lifetime plan: \"{}\" lives until step {} and again from step {}; a span must begin "
        "behind the one before",
        name, spans[i - 1].last, first);
  }
  ZERO_CHECK(!numbers_.contains(name),
             "lifetime plan: \"{}\" is added twice; each tensor needs a name of its own", name);
  ZERO_CHECK(bytes <= kMostBytes - sum_,
             "lifetime plan: with \"{}\" of {} bytes there are more than {} in all", name, bytes,
             kMostBytes);
  sum_ += bytes;
  numbers_.emplace(name, places_.size());
  places_.push_back({.name = std::move(name), .bytes = bytes, .spans = std::move(spans)});
  placed_ = false;
}

void LifetimePlan::place() {
  std::vector<Lifetime> lifetimes;
  for (const Place& each : places_) lifetimes.push_back({each.bytes, each.spans});
  LifetimePlaces found = first_fit(lifetimes, largest_first(lifetimes), alignment_);
  Order order = longest_first(lifetimes);
  const std::int64_t least = lower_bound();
  const std::size_t tries = found.total == least ? 0 : tries_of(lifetimes.size());
  for (std::size_t i = 0; i < tries && found.total > least; ++i) {
    const LifetimePlaces other = first_fit(lifetimes, order, alignment_);
    raise_last(order, lifetimes, other);
    if (other.total < found.total) found = other;
  }
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

std::int64_t LifetimePlan::lower_bound() const {
  std::int64_t most = 0;
  for (const auto& [step, sum] : sums_of(places_)) most = std::max(most, sum);
  return most;
}

std::int64_t LifetimePlan::most_alive(int first, int last) const {
  std::int64_t most = 0;
  std::int64_t before = 0;  // what is alive at `first` unless a sum begins there
  for (const auto& [step, sum] : sums_of(places_)) {
    if (step > last) break;
    if (step <= first) {
      before = sum;
    } else {
      most = std::max(most, sum);
    }
  }
  return std::max(most, before);
}

LifetimePlan::Peak LifetimePlan::peak() const {
  Peak peak;
  for (const auto& [step, sum] : sums_of(places_)) {
    if (sum > peak.bytes) peak = {.bytes = sum, .step = static_cast<int>(step), .alive = {}};
  }
  for (const Place& each : places_) {
    if (each.alive_at(peak.step)) peak.alive.push_back(each);
  }
  std::ranges::stable_sort(peak.alive, std::greater<>(), &Place::bytes);
  return peak;
}

}  // namespace zero
