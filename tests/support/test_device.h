// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"

namespace zero::testing {

/// How the test device orders work that the recorded dependencies do not order.
struct StreamOrder {
  enum class Policy {
    lazy,    ///< run all work as late as the waits allow: only what a synchronize needs,
             ///< transitively
    seeded,  ///< a random legal interleaving, from the seed; sometimes eager, sometimes late
  };
  Policy policy = Policy::lazy;
  std::uint64_t seed = 0;
  /// Apart: memory of allocate() is open only while submitted work runs on one of the device's
  /// streams; any other access, also by work of submit_host(), faults.
  MemorySpace memory = MemorySpace::host;
  PieceSizes pieces{};  ///< of the device: others than its own show a stride that is wrong
};

/// Orders that show a forgotten wait: all work late, the same with memory apart, and `seeded`
/// random ones.
std::vector<StreamOrder> stream_orders(std::uint64_t seeded);

/// A CPU device whose three streams queue their work and run it on the calling thread in the given
/// order. A forgotten wait between any two then gives wrong values deterministically.
/// synchronize() of a stream or an event runs the work that it needs. Memory is poisoned on
/// allocation.
std::unique_ptr<Device> open(const StreamOrder& order);

}  // namespace zero::testing
