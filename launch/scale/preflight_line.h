// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>

#include "device/device.h"

namespace zero {

/// What is to be checked before the first run on some hosts.
struct PreflightQuestion {
  DeviceKind device = DeviceKind::cpu;
  int hosts = 0;                      ///< that are expected; 0: any
  std::string folder{};               ///< that all hosts must see; empty: not checked
  std::chrono::seconds patience{60};  ///< for a rank that does not come
  /// This host's clock.
  std::function<std::chrono::system_clock::time_point()> clock = std::chrono::system_clock::now;
};

/// The outcome of one check.
struct PreflightLine {
  bool ok = true;
  std::string name;  ///< "clocks"
  std::string text;  ///< what was found; if it is wrong, with what is expected and what to do

  /// "ok    clocks: ..." or "WRONG clocks: ...".
  std::string shown() const { return fmt::format("{:<5} {}: {}", ok ? "ok" : "WRONG", name, text); }
};

}  // namespace zero
