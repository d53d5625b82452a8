// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace zero {

/// How long a rank waits in a collective for ranks that do not come; 0: no limit. `timeout` should
/// exceed every legitimate delay (a file that one rank writes, a first step).
struct WaitLimits {
  std::chrono::milliseconds warning{30'000};   ///< then `warn` gets one line
  std::chrono::milliseconds timeout{600'000};  ///< then the wait throws that line as zero::Error
  /// Called on waiting threads (a stream's, a watch's), possibly several at once. Must not throw.
  std::function<void(const std::string&)> warn{};
  /// Whether a disk decides how long ranks take: no time alone tells that one of them hangs.
  bool disk_decides = false;
};

}  // namespace zero
