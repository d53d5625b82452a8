// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "collectives/communicator.h"

namespace zero {

/// Reserves a communicator's collectives for the streams of one device: ranks match collectives by
/// their order, which streams of two devices do not keep. Any number of claims for one device may
/// live; a planning device, which runs no collectives, claims nothing. Used by the host thread that
/// uses the communicator.
class DeviceClaim {
 public:
  /// Throws zero::Error, naming `who` and what to do, while a claim for another device lives.
  /// `device` must outlive this.
  DeviceClaim(const Communicator& communicator, const Device& device, std::string_view who);
  ~DeviceClaim();
  DeviceClaim(const DeviceClaim&) = delete;
  DeviceClaim& operator=(const DeviceClaim&) = delete;

 private:
  std::shared_ptr<CollectiveBackend> backend_;  // null: nothing is claimed
};

}  // namespace zero
