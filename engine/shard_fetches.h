// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule.h"
#include "engine/sharding.h"
#include "engine/state_home.h"
#include "engine/unit.h"
#include "engine/waits.h"

namespace zero {

/// Brings this rank's shards of parameters from their home to the gathers of a micro-batch: reads
/// (fetches) the part that a gather takes to one of a few slots of StateHome, in the order of the
/// gathers and ahead of them. Work of the transfer stream, which events order against
/// communication; they wait for work submitted before, so streams cannot wait in a circle. A
/// micro-batch: begin(), then for each gather before_gather(), source() and after_gather(), and
/// read_ahead() once all units are as they are going to be gathered. Units in memory pass through,
/// and cost nothing. Used by the engine's host thread; all arguments must outlive this.
class ShardFetches {
 public:
  /// `units` have their storage. `buffers`: most slots; each has room for the part of any unit.
  ShardFetches(Device& device, const Waits& waits, const Sharding& sharding,
               std::span<const Unit> units, StateHome& home, int buffers);

  /// Bytes of the slots, equal on all ranks, for StateHome::open(), which must come before the
  /// first micro-batch.
  std::int64_t bytes() const { return slot_bytes_ * std::ssize(slots_); }

  /// A micro-batch of `schedule` begins. Drops what was fetched and not gathered; what is fetched
  /// from here on has the values behind the writes submitted so far. Nothing is read ahead.
  void begin(const Schedule& schedule);
  /// Fetches may run ahead of gathers until the next begin(): starts those for which slots are
  /// free.
  void read_ahead();

  /// Call before the next gather of the schedule, of `unit`. Returns the end of its fetch, for
  /// which the gather must wait; a complete event if nothing is fetched.
  Event before_gather(const Unit& unit);
  /// The memory from which that gather takes this rank's part of a segment of its unit.
  View source(const Segment& segment) const;
  /// Call after that gather, which ends with `gathered`.
  void after_gather(const Unit& unit, const Event& gathered);

 private:
  struct Slot {
    std::vector<StateHome::Ticket> moving;  // of the fetch into it, until that is finished
    Event fetched;
    Event gathered;  // the last gather from it
  };

  Slot& slot(std::size_t number) { return slots_[number % slots_.size()]; }
  View place(std::size_t number, const Segment& segment) const;
  std::int64_t room(const Segment& segment) const;
  void start(std::size_t end);
  void finish(std::size_t end);
  void go_ahead();

  Device& device_;
  const Waits& waits_;
  const Sharding& sharding_;
  std::span<const Unit> units_;
  StateHome& home_;
  std::int64_t slot_bytes_ = 0;
  std::vector<Slot> slots_;

  // Fetches of a micro-batch are numbered in the order of their gathers.
  std::vector<int> order_;    // their units
  std::size_t next_ = 0;      // the one whose gather is issued next
  std::size_t started_ = 0;   // begun to be read
  std::size_t finished_ = 0;  // with an event behind their end
  bool ahead_ = false;
};

}  // namespace zero
