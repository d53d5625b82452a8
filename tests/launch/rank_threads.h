// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "collectives/backends.h"
#include "collectives/communicator.h"
#include "device/device.h"

namespace zero::testing {

// For ranks that are threads of one process.

/// The addresses of each host of a job that this machine alone stands for.
inline const std::vector<std::string> kLoopback{"127.0.0.1"};

/// Returns once all ranks have called it.
inline void all_meet(Communicator& ranks) {
  const auto device = cpu::open();
  ranks.barrier(device->communication(), {"meeting"});
  device->communication().synchronize();
}

/// Returns once `holds()` is true. Throws after a minute.
template <typename Holds>
void wait_until(const Holds& holds,
                const std::source_location& where = std::source_location::current()) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    ZERO_CHECK(std::chrono::steady_clock::now() < end,
               "{}:{}: the condition does not hold after 60 s", where.file_name(), where.line());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace zero::testing
