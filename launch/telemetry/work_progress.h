// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace zero {

class Console;

/// Shows how far a piece of work is that takes seconds for a small model and minutes for a large
/// one: nothing in its first seconds, then Console::progress(), with speed and time left. A
/// PassProgress. `console` must outlive it.
class WorkProgress {
 public:
  /// `what`: "hashing the model states"; `of`: what is counted, "values". `start`: when the work
  /// began.
  WorkProgress(Console& console, std::string what, std::string of,
               std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now());

  void operator()(std::int64_t done, std::int64_t all) const;

 private:
  Console* console_;
  std::string what_;
  std::string of_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace zero
