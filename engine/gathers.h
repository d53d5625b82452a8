// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "device/buffer.h"
#include "engine/schedule.h"
#include "engine/shard_fetches.h"
#include "engine/sharding.h"
#include "engine/unit.h"
#include "engine/waits.h"

namespace zero {

/// The memory of a schedule's windows and the events that guard it. Before a window's bytes are
/// reused, a gather waits for the compute, and compute for the reduces, of every window that shares
/// bytes with it. (Gathers and reduces share one stream, and so do uses and writes, so these pairs
/// need no event.)
class WindowArena {
 public:
  /// `memory` (bytes) holds the schedule's parameter windows, `gradients` the others: together they
  /// must be at least its arena. All must outlive this.
  WindowArena(const Schedule& schedule, View memory, const Waits& waits, View gradients = {});

  /// `count` elements of the window; throws zero::Error if they do not fit it.
  View view(int window, DType dtype, std::int64_t count) const;
  /// The whole window.
  View view(int window, DType dtype) const {
    return view(window, dtype, schedule_.window(window).bytes / size_of(dtype));
  }

  /// Call before submitting a gather into the window to `communication`.
  void before_gather(int window, Stream& communication) const;
  /// Call after that gather.
  void gathered(int window, Event event) { guards_[index(window)].gathered = std::move(event); }
  const Event& gathered(int window) const { return guards_[index(window)].gathered; }
  /// The end of the fetch that the window's gather waits for.
  void fetched(int window, Event event) { guards_[index(window)].fetched = std::move(event); }
  const Event& fetched(int window) const { return guards_[index(window)].fetched; }
  /// Call after the last compute that used a parameter window.
  void released(int window, Event event) { guards_[index(window)].released = std::move(event); }
  /// Call before compute first writes a gradient window.
  void before_write(int window, Stream& compute) const;
  /// Call after the reduce that read a gradient window.
  void reduced(int window, Event event) { guards_[index(window)].reduced = std::move(event); }

 private:
  struct Guard {
    Event fetched;
    Event gathered;
    Event released;
    Event reduced;
  };
  static std::size_t index(int window) { return static_cast<std::size_t>(window); }

  const Schedule& schedule_;
  View memory_;
  View gradients_;
  const Waits& waits_;
  std::vector<Guard> guards_;
};

/// The schedules of a sealed engine.
struct Schedules {
  Schedule training;
  Schedule evaluation;  ///< of the forward uses only
};

/// Makes the parameters of units present around compute: issues the gathers of a schedule, of
/// shards that are away behind their fetches, waits for them, and releases their windows. The
/// schedule is that of training or, during an evaluation, that of the forward uses; the windows of
/// both share memory, which lives as long as this object.
class Gathers {
 public:
  /// Allocates the windows. `units` have their storage, some of it in `home`. All arguments but
  /// `schedules` must outlive this.
  Gathers(const EngineResources& resources, Sharding& sharding, Waits& waits,
          std::span<const Unit> units, Schedules schedules, StateHome& home);
  Gathers(const Gathers&) = delete;
  Gathers& operator=(const Gathers&) = delete;

  /// ShardFetches::bytes().
  std::int64_t fetch_bytes() const { return fetches_.bytes(); }
  const Schedule& training() const { return training_.schedule; }
  const Schedule& evaluation() const { return evaluation_.schedule; }
  bool evaluating() const { return evaluating_; }
  /// Lets the other schedule drive. Both streams must be done with the windows.
  void set_evaluating(bool evaluating) { evaluating_ = evaluating; }
  /// The schedule that drives, and its windows.
  const Schedule& schedule() const { return driven().schedule; }
  WindowArena& windows() { return evaluating_ ? evaluation_.windows : training_.windows; }

  /// Selects parameters of a unit.
  enum class Kind : std::uint8_t { trainable, frozen };
  /// Updates the copies of a unit's parameters that live between steps from this rank's part,
  /// behind the compute that has changed it.
  void publish(Unit& unit, Kind kind);
  /// Issues the gathers that the schedule starts before a micro-batch. No parameter may change
  /// from here to its end.
  void begin_micro_batch();
  /// The start of the first micro-batch of a step, unit by unit.
  struct FirstGathers {
    std::vector<int> updated;  ///< units
    std::size_t issued = 0;    ///< of Schedule::begin
  };
  /// After the update of `unit`: issues those gathers in the schedule's order, up to the first of a
  /// unit not updated yet. The order must be kept: a unit's gather for backward may precede the end
  /// of forward, but not another unit's gather for forward.
  void begin_after_update(int unit, FirstGathers& first);

  /// Issues the gathers that are due before a compute step; its compute waits for its parameters.
  void make_present(const ScheduleStep& step);
  /// A full parameter of the step's unit, by its index in the unit's list.
  View parameter(const ScheduleStep& step, int index) const;
  /// Call after the last compute that uses the step's window.
  void release(const ScheduleStep& step);

 private:
  struct Driven {
    Driven(Schedule of, View parameters, View gradients, const Waits& waits)
        : schedule(std::move(of)), windows(schedule, parameters, waits, gradients) {}
    Driven(const Driven&) = delete;
    Driven& operator=(const Driven&) = delete;
    Schedule schedule;
    WindowArena windows;
  };

  const Driven& driven() const { return evaluating_ ? evaluation_ : training_; }
  const Unit& unit_at(int index) const { return units_[static_cast<std::size_t>(index)]; }
  void issue(int window);
  void wait_for_fetch(int window);

  EngineResources resources_;
  Sharding& sharding_;
  Waits& waits_;
  std::span<const Unit> units_;
  Buffer parameters_;  ///< memory of parameter windows
  Buffer gradients_;   ///< of gradient windows
  Driven training_;
  Driven evaluation_;
  ShardFetches fetches_;
  bool evaluating_ = false;
};

}  // namespace zero
