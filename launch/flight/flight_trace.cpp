// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "base/error.h"
#include "launch/telemetry/trace.h"

namespace zero {
namespace {

TraceTrack::Time at(std::int64_t time) { return TraceTrack::Time(std::chrono::nanoseconds(time)); }

/// Spans of which each ends where the next begins.
class Chain {
 public:
  explicit Chain(TraceTrack& track) : track_(track) {}
  void begin(std::string name, std::int64_t time) {
    end(time);
    name_ = std::move(name);
    began_ = time;
  }
  void end(std::int64_t time) {
    if (!name_.empty()) track_.add(name_, at(began_), at(std::max(began_, time)));
    name_.clear();
  }

 private:
  TraceTrack& track_;
  std::string name_{};
  std::int64_t began_ = 0;
};

void add_collective(TraceTrack& track, const FlightRecord& record, std::int64_t newest) {
  const FlightState::Collective& call = record.collective;
  if (call.started == 0) return;
  const bool open = call.ended == 0;
  const std::int64_t end = std::max(call.started, open ? newest : call.ended);
  track.add(open ? record.name + " (open)" : record.name, at(call.started), at(end), call.bytes);
}

std::int64_t newest_of(const std::vector<FlightRecord>& records) {
  std::int64_t newest = 0;
  for (const FlightRecord& each : records) {
    newest = std::max({newest, each.time, each.collective.started, each.collective.ended});
  }
  return newest;
}

RankTrace trace_of(const FlightRing& ring) {
  RankTrace trace(std::max<std::int64_t>(1, std::ssize(ring.records)));
  const std::int64_t newest = newest_of(ring.records);
  Chain phases(trace.steps);
  Chain units(trace.units);
  for (const FlightRecord& record : ring.records) {
    switch (record.kind) {
      case flight::Kind::phase:
        phases.begin(
            record.step < 0 ? record.name : fmt::format("{} of step {}", record.name, record.step),
            record.time);
        if (record.name != "forward" && record.name != "backward") units.end(record.time);
        break;
      case flight::Kind::compute:
        units.begin(record.name, record.time);
        break;
      default:
        add_collective(trace.communication, record, newest);
    }
  }
  phases.end(newest);
  units.end(newest);
  return trace;
}

}  // namespace

void write_flight_trace(std::span<const FlightRing> rings, const std::string& path) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const FlightRing& ring : rings) {
    for (const FlightRecord& record : ring.records) {
      origin = std::min(origin, record.time + ring.shift);
    }
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace_head();
  for (const FlightRing& ring : rings) {
    if (!ring.records.empty()) file << trace_events(trace_of(ring), ring.rank, ring.shift - origin);
  }
  file << trace_tail(0);
  file.close();
  ZERO_CHECK(file.good(),
             "--trace: cannot write {}: {}; give the path of a file that you may write to", path,
             std::strerror(errno));
}

}  // namespace zero
