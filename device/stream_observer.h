// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "device/device.h"

namespace zero {

/// Hears what is submitted to a compute stream, on the host thread that submits it; must not throw.
/// When it ran, the marks tell later.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  /// Asked before each piece of work and each wait: whether it is to be marked.
  virtual bool listens() const noexcept = 0;
  /// The work submitted as `what` runs between two marks.
  virtual void ran(std::string_view what, Mark begin, Mark end) noexcept = 0;
  /// The stream waits for another stream's event.
  virtual void waited(Mark begin, Mark end) noexcept = 0;
};

// As open(), with an observer of the compute stream, which must outlive the device. Streams of
// devices without one are not slowed down.

namespace cpu {
std::unique_ptr<Device> open(const Options& options, StreamObserver& observer);
}  // namespace cpu

namespace cuda {
std::unique_ptr<Device> open(const Options& options, StreamObserver& observer);
}  // namespace cuda

}  // namespace zero
