// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/communication_time.h"

#include <exception>
#include <optional>

namespace zero {

void CommunicationTime::collective(const CollectiveRecord& /*record*/, Mark begin,
                                   Mark end) noexcept {
  try {
    running_.emplace_back(std::move(begin), std::move(end));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a time is lost, not the run
  }
}

double CommunicationTime::take() {
  double seconds = 0;
  for (; !running_.empty(); running_.pop_front()) {
    const std::optional<double> each =
        running_.front().second.seconds_since(running_.front().first);
    if (!each) break;
    seconds += *each;
  }
  return seconds;
}

}  // namespace zero
