// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "device/stream.h"

namespace zero {

/// A device's time on the host's clock, between two points at which the host waits for a stream:
/// the two clocks meet there, and in between the device's runs evenly. Used by one host thread.
class HostClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The first meeting. Blocks until all work of the stream has run.
  explicit HostClock(Stream& stream);
  /// The second.
  void stop(Stream& stream);

  /// Seconds of the device from the first meeting to a mark of one of its streams; nothing as long
  /// as the stream is not there.
  std::optional<double> seconds_to(const Mark& mark) const {
    return mark.seconds_since(begin_.mark);
  }
  /// The host's time so many seconds of the device after the first meeting. Behind stop().
  Time at(double seconds) const;
  double seconds() const { return seconds_; }  ///< of the device, between the meetings
  /// What at() may be wrong by, beside the grain of the device's clock: each meeting lies between
  /// two looks at the host's.
  double error_seconds() const;

 private:
  struct Meeting {
    Mark mark;
    Time time;
    double error = 0;  // seconds
  };
  static Meeting meet(Stream& stream);

  Meeting begin_;
  Meeting end_;
  double seconds_ = 0;
};

}  // namespace zero
