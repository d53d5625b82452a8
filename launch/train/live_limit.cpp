// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/live_limit.h"

#include <fmt/format.h>

namespace zero {

std::string live_limit_line(const Schedule& schedule, const ScheduleLimits& limits) {
  constexpr const char* kKey = "zero_optimization.stage3_max_live_parameters";
  if (!limits.live_elements) {
    if (schedule.peak_live_elements <= kLiveElements) return {};
    return fmt::format(
        "{} elements are gathered at once, above {}, as {} is not given: the two largest units "
        "that follow one another, so that each is gathered while the one before computes",
        schedule.peak_live_elements, kLiveElements, kKey);
  }
  const bool holds_back = schedule.pair_elements > schedule.live_limit;
  if (!holds_back || limits.prefetch_elements) return {};
  return fmt::format(
      "{} is {}, and the two largest units that follow one another have {} elements: the second is "
      "gathered when it is used, and waited for; leave the key out to gather it ahead",
      kKey, schedule.live_limit, schedule.pair_elements);
}

}  // namespace zero
