// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "device/device.h"

namespace zero::planning {

/// How long work would take: the durations of a planning device's virtual clock.
class WorkTimes {
 public:
  enum class Lane : std::uint8_t { compute, communication, transfer };  ///< the device's streams

  virtual ~WorkTimes() = default;
  /// Seconds of the work submitted as `what` that reads and writes `bytes` (announce(); 0: not
  /// told), alone on the device. Called once for each piece of work, in submission order.
  virtual double seconds(Lane lane, std::string_view what, std::int64_t bytes) = 0;
};

/// Work on a stream with a virtual clock, which is free for the next at `end`.
struct Span {
  double begin = 0;  ///< behind waits for other ranks
  double end = 0;
  /// Seconds from `begin` in which it takes of compute's speed; until `end` it waits for a
  /// transfer.
  double working = 0;
  /// Of its rate, what that transfer keeps while compute works; only with `inline_compute`, by
  /// which compute that has been submitted has run.
  double transfer_share = 1;
};

struct ClockOptions {
  WorkTimes* times = nullptr;   ///< must outlive the device; null: no clock, streams drop work
  bool inline_compute = false;  ///< the host thread runs the compute stream's work itself: CPUs
  double submit_seconds = 0;    ///< of the host, to submit a piece of work
  double compute_share = 1;     ///< of compute's speed that is left while communication works
  /// Of compute's speed that is left while communication waits; only with `inline_compute`.
  double waiting_share = 1;
};

/// As the functions of these names in device/device.h, with streams that count the time of work on
/// a virtual clock: events and marks have its times, and Stream::waited_seconds() counts its waits.
std::unique_ptr<Device> open(const ClockOptions& clock, int threads, MemorySpace memory,
                             DeviceKind kind);
std::unique_ptr<Device> open_gpu_memory(const ClockOptions& clock);

/// Tells a stream with a virtual clock the bytes that its next piece of work reads and writes;
/// other streams need not know.
void announce(Stream& stream, std::int64_t bytes);

}  // namespace zero::planning
