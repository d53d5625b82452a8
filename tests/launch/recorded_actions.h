// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/faults/fault_actions.h"

namespace zero::testing {

/// Keeps what faults would do to the process, on a clock of its own. Must outlive the actions.
class RecordedActions {
 public:
  FaultActions actions() {
    return {.signal = [this](int number) { done_.push_back(fmt::format("signal {}", number)); },
            .loop = [this] { done_.emplace_back("loop"); },
            .cut =
                [this] {
                  done_.emplace_back("cut");
                  return 2;
                },
            .fill_memory = [this] { done_.emplace_back("fill memory"); },
            .sleep =
                [this](double seconds) {
                  done_.push_back(fmt::format("sleep {:.3f}", seconds));
                  pass(seconds);
                },
            .now = [this] { return now_; },
            .say = [this](const std::string& line) { said_.push_back(line); }};
  }

  void pass(double seconds) {
    now_ += std::chrono::duration_cast<FaultActions::Clock::duration>(
        std::chrono::duration<double>(seconds));
  }
  /// What was done, in order; forgets it.
  std::vector<std::string> take() { return std::exchange(done_, {}); }
  const std::vector<std::string>& said() const { return said_; }

 private:
  FaultActions::Clock::time_point now_{};
  std::vector<std::string> done_;
  std::vector<std::string> said_;
};

}  // namespace zero::testing
