// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "device/device.h"

namespace zero {

/// Hears what a compute stream did. Called by the thread that is the stream, after the fact; must
/// not throw.
class StreamObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~StreamObserver() = default;
  /// The work submitted as `what` has run.
  virtual void ran(std::string_view what, Time begin, Time end) noexcept = 0;
  /// The stream has waited for another stream's event.
  virtual void waited(Time begin, Time end) noexcept = 0;
};

namespace cpu {

/// As open(), with an observer of the compute stream, which must outlive the device. Streams of
/// devices without one are not slowed down.
std::unique_ptr<Device> open(const Options& options, StreamObserver& observer);

}  // namespace cpu

}  // namespace zero
