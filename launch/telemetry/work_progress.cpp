// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/work_progress.h"

#include <fmt/format.h>

#include <utility>

#include "base/seconds_since.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace zero {

WorkProgress::WorkProgress(Console& console, std::string what, std::string of,
                           std::chrono::steady_clock::time_point start)
    : console_(&console), what_(std::move(what)), of_(std::move(of)), start_(start) {}

void WorkProgress::operator()(std::int64_t done, std::int64_t all) const {
  constexpr double kQuietSeconds = 3;
  const double seconds = seconds_since(start_);
  if (seconds < kQuietSeconds || done <= 0) return;
  const double speed = static_cast<double>(done) / seconds;
  console_->progress(
      fmt::format("{}: {:.0f} %  {} of {} {}  {}/s  {} left", what_,
                  100 * static_cast<double>(done) / static_cast<double>(all),
                  count_text(static_cast<double>(done)), count_text(static_cast<double>(all)), of_,
                  count_text(speed), duration_text(static_cast<double>(all - done) / speed)),
      start_);
}

}  // namespace zero
