// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "device/stream.h"

namespace zero {

/// Maps a device's time to the host's clock: compares both clocks at two points at which the host
/// waits for a stream, and interpolates linearly between them. Used by one host thread.
class HostClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Makes the first comparison. Blocks until all work of the stream has run.
  explicit HostClock(Stream& stream);
  /// Makes the second comparison, in the same way.
  void stop(Stream& stream);

  /// Device seconds from the first comparison to a mark on one of its streams; nothing while the
  /// stream has not reached the mark.
  std::optional<double> seconds_to(const Mark& mark) const {
    return mark.seconds_since(begin_.mark);
  }
  /// The host's time `seconds` of the device after the first comparison. Call after stop().
  Time at(double seconds) const;
  double seconds() const { return seconds_; }  ///< of the device, between the comparisons
  /// The error of at(), apart from the resolution of the device's clock: each comparison lies
  /// between two reads of the host's clock.
  double error_seconds() const;

 private:
  struct Comparison {
    Mark mark;
    Time time;
    double error = 0;  // seconds
  };
  static Comparison compare(Stream& stream);

  Comparison begin_;
  Comparison end_;
  double seconds_ = 0;
};

}  // namespace zero
