// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zero {

/// Thrown on all ranks of a group whose calls differ, if most of them made the same call.
class CallsDiffer : public Error {
 public:
  /// `rank` throws it; `who_calls_what`: OddCalls::text; `odd`: the ranks that made another call
  /// than most.
  CallsDiffer(int rank, std::string who_calls_what, std::vector<int> odd)
      : Error(fmt::format("[rank {}] {}", rank, who_calls_what)),
        who_calls_what_(std::move(who_calls_what)),
        odd_(std::move(odd)) {}

  const std::string& who_calls_what() const { return who_calls_what_; }
  const std::vector<int>& odd() const { return odd_; }

 private:
  std::string who_calls_what_;
  std::vector<int> odd_;
};

}  // namespace zero
