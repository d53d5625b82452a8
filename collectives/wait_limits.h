// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace zero {

/// How long a rank waits in a collective for ranks that do not come. 0: without end. What is long
/// for a good reason (a file that one rank writes, a first step) should stay below `timeout`.
struct WaitLimits {
  std::chrono::milliseconds warning{30'000};   ///< then `warn` gets one line for this wait
  std::chrono::milliseconds timeout{600'000};  ///< then the wait ends with that line as zero::Error
  /// Called on the thread that waits (a stream's, or a watch), by several at once. Must not throw.
  std::function<void(const std::string&)> warn{};
};

}  // namespace zero
