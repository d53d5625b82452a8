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
  std::chrono::milliseconds warning{30'000};  ///< then, and at 2, 4, 8 ... times it, `warn` is told
  std::chrono::milliseconds timeout{600'000};  ///< then the wait throws that line as zero::Error
  /// Called on waiting threads (a stream's, a watch's), possibly several at once. Must not throw.
  std::function<void(const std::string&)> warn{};
  /// "load", "save": a disk decides how long ranks take, and no time alone tells that one of them
  /// hangs. Empty: no disk does.
  std::string disk_phase{};
};

}  // namespace zero
