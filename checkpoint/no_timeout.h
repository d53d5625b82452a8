// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>

#include "collectives/communicator.h"

namespace zero {

/// While one lives, this rank waits in collectives without a timeout; warnings stay. For waits that
/// a disk decides: the files of a checkpoint may take longer than any rank should.
class NoTimeout {
 public:
  explicit NoTimeout(const Communicator& world)
      : world_(world.implementation()), before_(world_.wait_limits()) {
    WaitLimits limits = *before_;
    limits.timeout = std::chrono::milliseconds(0);
    world_.set_wait_limits(limits);
  }
  ~NoTimeout() {
    try {
      world_.set_wait_limits(*before_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory; the limits stay lifted
    }
  }
  NoTimeout(const NoTimeout&) = delete;
  NoTimeout& operator=(const NoTimeout&) = delete;

 private:
  Communicator world_;
  std::shared_ptr<const WaitLimits> before_;
};

}  // namespace zero
