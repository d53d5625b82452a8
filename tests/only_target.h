// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/targets.h>

#include <cstdint>

namespace zero::testing {

/// Dispatches vector code to one instruction set until the end of the scope.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace zero::testing
