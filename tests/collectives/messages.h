// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "tests/errors.h"

namespace zero::test {

/// What each of `ranks` threads meets when it runs `body`, in rank order.
inline std::vector<std::string> messages_of(
    int ranks, const std::function<void(Communicator&, Device&)>& body) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  local::run(ranks, [&](Communicator& communicator) {
    const auto device = cpu::open();
    messages[static_cast<std::size_t>(communicator.rank())] = error_of([&] {
      body(communicator, *device);
      device->communication().synchronize();
    });
  });
  return messages;
}

}  // namespace zero::test
