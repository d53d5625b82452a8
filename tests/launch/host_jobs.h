// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"

namespace zero::testing {

// For ranks that are threads of one process, whose machine stands for all hosts.

inline const std::vector<std::string> kLoopback{"127.0.0.1"};

/// Whether that comes to be.
inline bool comes(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

inline void all_meet(Communicator& world, Device& device) {
  world.barrier(device.communication(), {"meeting", {}});
  device.communication().synchronize();
}

}  // namespace zero::testing
