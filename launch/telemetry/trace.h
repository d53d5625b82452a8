// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "device/memory_ledger.h"

namespace zero {

/// The events of one stream, in order, in bounded memory: new events replace the oldest. Written by
/// one thread.
class TraceTrack {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `capacity`: the number of events kept, at 32 bytes each.
  explicit TraceTrack(std::int64_t capacity) : capacity_(static_cast<std::size_t>(capacity)) {}

  struct Event {
    std::int64_t begin = 0;  ///< nanoseconds of CLOCK_MONOTONIC
    std::int64_t end = 0;
    std::int64_t bytes = 0;  ///< moved; 0: none
    std::uint32_t name = 0;
  };
  void add(std::string_view name, Time begin, Time end, std::int64_t bytes = 0);
  /// The kept events, the oldest first.
  const std::deque<Event>& events() const { return events_; }
  std::string_view name_of(const Event& event) const { return names_[event.name]; }
  std::int64_t dropped() const { return dropped_; }

 private:
  std::size_t capacity_;
  std::int64_t dropped_ = 0;
  std::deque<Event> events_;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t, std::less<>> ids_;
};

/// Bytes of memory by class over time: a counter for each class. Keeps the newest, as TraceTrack.
class MemoryTrack {
 public:
  /// `capacity`: the number of moments kept, at 72 bytes each.
  explicit MemoryTrack(std::int64_t capacity) : capacity_(static_cast<std::size_t>(capacity)) {}

  struct Moment {
    std::int64_t time = 0;  ///< nanoseconds of CLOCK_MONOTONIC
    BytesByClass bytes{};
  };
  void add(TraceTrack::Time time, const BytesByClass& bytes);
  /// The oldest first.
  const std::deque<Moment>& moments() const { return moments_; }
  std::int64_t dropped() const { return dropped_; }

 private:
  std::size_t capacity_;
  std::int64_t dropped_ = 0;
  std::deque<Moment> moments_;
};

/// The events of a rank in the traced steps.
struct RankTrace {
  explicit RankTrace(std::int64_t capacity)
      : steps(capacity),
        units(capacity),
        compute(capacity),
        communication(capacity),
        memory(capacity) {}
  TraceTrack steps, units, compute, communication;
  MemoryTrack memory;
  /// Error of the device's times on the host's clock, in seconds.
  double clock_error = 0;
};

/// One rank's events in Chrome's trace format, each preceded by a comma, with times shifted by
/// `shift` nanoseconds. Metadata events with the names of processes and threads come first;
/// counters of memory come last.
std::string trace_events(const RankTrace& trace, int rank, std::int64_t shift);

/// A trace file around the events of its ranks: what stands before them, and behind.
std::string trace_head();
std::string trace_tail(double clock_error);

/// The shift from each rank's clock to the first rank's: 0 on the first rank's host, measured by
/// barriers on other hosts. The same on all ranks. Collective.
std::vector<std::int64_t> clock_shifts(Communicator& communicator, Device& device);

/// The first rank writes all ranks' events to `path` as one JSON document, with times relative to
/// `origin` of the first rank. Returns the largest clock_error of all ranks, which the document
/// contains too. Throws AgreedError on failure. Collective; between steps, with idle streams.
double write_trace(Communicator& communicator, Device& device, const RankTrace& trace,
                   const std::string& path, TraceTrack::Time origin);

}  // namespace zero
