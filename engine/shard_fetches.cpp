// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/shard_fetches.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"

namespace zero {
namespace {

bool is_fetched(const Unit& unit) {
  return std::ranges::any_of(unit.segments, &Segment::shard_away);
}

}  // namespace

ShardFetches::ShardFetches(Device& device, const Waits& waits, const Sharding& sharding,
                           std::span<const Unit> units, StateHome& home, int buffers)
    : device_(device), waits_(waits), sharding_(sharding), units_(units), home_(home) {
  std::size_t fetched = 0;
  for (const Unit& unit : units) {
    std::int64_t bytes = 0;
    for (const Segment& segment : unit.segments) bytes += room(segment);
    slot_bytes_ = std::max(slot_bytes_, bytes);
    if (is_fetched(unit)) ++fetched;
  }
  slots_.resize(std::min(static_cast<std::size_t>(buffers), fetched));
}

/// Bytes of a segment in a slot, whole blocks: the part of rank 0, which no rank's exceeds.
std::int64_t ShardFetches::room(const Segment& segment) const {
  if (!segment.shard_away) return 0;
  const std::int64_t most = std::min(segment.layout.shard(), sharding_.window_elements(segment));
  return round_up(most * size_of(segment.shard.dtype()), TierFile::kBlock);
}

/// The bytes of a segment in the slot of fetch `number`.
View ShardFetches::place(std::size_t number, const Segment& segment) const {
  std::int64_t at = static_cast<std::int64_t>(number % slots_.size()) * slot_bytes_;
  for (const Segment& each : units_[static_cast<std::size_t>(order_[number])].segments) {
    if (&each == &segment) break;
    at += room(each);
  }
  return home_.slots().slice(at, room(segment));
}

void ShardFetches::begin(const Schedule& schedule) {
  finish(started_);
  next_ = started_ = finished_ = 0;
  ahead_ = false;
  order_.clear();
  if (slots_.empty()) return;
  const auto add = [&](const std::vector<int>& windows) {
    for (const int window : windows) {
      const int unit = schedule.window(window).unit;
      if (is_fetched(units_[static_cast<std::size_t>(unit)])) order_.push_back(unit);
    }
  };
  add(schedule.begin);
  for (const ScheduleStep& step : schedule.steps) add(step.gathers);
}

/// Starts the fetches before number `end`.
void ShardFetches::start(std::size_t end) {
  for (; started_ < end; ++started_) {
    Slot& to = slot(started_);
    waits_.wait(device_.transfer(), to.gathered, WaitSite::gather_before_fetch);
    for (const Segment& segment : units_[static_cast<std::size_t>(order_[started_])].segments) {
      if (!segment.shard_away) continue;
      const View part = sharding_.gathered_part(segment);
      if (part.empty()) continue;
      const View from = home_.whole_blocks(part);
      to.moving.push_back(
          home_.start_read(from, place(started_, segment).reinterpret(from.dtype(), from.count())));
    }
    if (home_.in_order()) to.fetched = device_.transfer().record();
  }
}

/// Lets the transfer stream wait for those before number `end`.
void ShardFetches::finish(std::size_t end) {
  for (; finished_ < end; ++finished_) {
    Slot& of = slot(finished_);
    for (const StateHome::Ticket ticket : std::exchange(of.moving, {})) home_.finish(ticket);
    if (!home_.in_order()) of.fetched = device_.transfer().record();
  }
}

/// All slots but that of the gather issued last are read into: the transfer stream waits for the
/// gather before that one, which compute is done waiting for when it needs the next.
void ShardFetches::go_ahead() {
  if (!ahead_ || slots_.empty()) return;
  const std::size_t end = std::min(next_ + slots_.size() - 1, order_.size());
  if (end <= next_) return;
  start(end);
  finish(next_ + 1);
}

void ShardFetches::read_ahead() {
  ahead_ = true;
  go_ahead();
}

Event ShardFetches::before_gather(const Unit& unit) {
  if (!is_fetched(unit)) return {};
  start(next_ + 1);
  finish(next_ + 1);
  return slot(next_).fetched;
}

View ShardFetches::source(const Segment& segment) const {
  const View part = sharding_.gathered_part(segment);
  return segment.shard_away ? place(next_, segment).reinterpret(part.dtype(), part.count()) : part;
}

void ShardFetches::after_gather(const Unit& unit, const Event& gathered) {
  if (!is_fetched(unit)) return;
  slot(next_++).gathered = gathered;
  go_ahead();
}

}  // namespace zero
