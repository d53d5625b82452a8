// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// How long ranks wait for each other, and what watches them.

#include <chrono>

#include "launch/config/answers.h"
#include "launch/config/train_config.h"
#include "launch/watch/fault_finder.h"

namespace zero {

WaitLimits make_wait_limits(const Configuration& values) {
  const double warning = values.number("run.collective_warning");
  const double timeout = values.number("run.collective_timeout");
  if (timeout != 0 && warning > timeout) {
    throw refusal_of(
        values, {{"run.collective_warning", timeout}, {"run.collective_timeout", warning}},
        "run.collective_warning is {:g} s, run.collective_timeout {:g} s: the job would end before "
        "the warning; give the warning the shorter time, or 0 for none",
        warning, timeout);
  }
  const auto milliseconds = [](double seconds) {
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  };
  return {.warning = milliseconds(warning), .timeout = milliseconds(timeout)};
}

void make_watchdog(const Configuration& values, TrainConfig::Run& run, Refusals& refusals) {
  run.watchdog = values.boolean("run.watchdog");
  run.watchdog_hosts = values.boolean("run.watchdog_hosts");
  run.hang_timeout = values.number("run.hang_timeout");
  if (!run.watchdog && values.given("run.watchdog_hosts")) {
    refusals.add(refusal_of(values, {{"run.watchdog_hosts"}},
                            "run.watchdog_hosts is given, but run.watchdog is false, and nobody "
                            "watches; switch the watchdog on, or leave the key out"));
  }
  if (!run.watchdog && values.given("run.hang_timeout")) {
    refusals.add(
        refusal_of(values, {{"run.hang_timeout"}},
                   "run.hang_timeout is given, but run.watchdog is false, and nothing else looks "
                   "for ranks that hang within it; switch the watchdog on, or leave the time out"));
    return;
  }
  if (run.hang_timeout > 0 && run.hang_timeout < kLeastHangSeconds) {
    refusals.add(refusal_of(
        values, {{"run.hang_timeout"}},
        "run.hang_timeout is {:g} s, expected at least {:g} s, or 0 for the usual time: the "
        "watchdog looks five times a second, and would take a busy rank for one that hangs",
        run.hang_timeout, kLeastHangSeconds));
    return;
  }
  const double timeout = values.number("run.collective_timeout");
  if (timeout == 0 || run.hang_timeout <= timeout) return;
  refusals.add(
      refusal_of(values, {{"run.hang_timeout"}},
                 "run.hang_timeout is {:g} s, run.collective_timeout {:g} s: the job would end "
                 "before; give the hang the shorter time, or 0 for the usual one",
                 run.hang_timeout, timeout));
}

}  // namespace zero
