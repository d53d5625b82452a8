// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/step_costs.h"

#include <algorithm>

namespace zero {

void StepCosts::begin(std::size_t compute_steps) {
  exposed_.assign(compute_steps, 0.0);
  mesh_.clear();
}

void StepCosts::end_traffic(StepReport& report) {
  report.axes = pending();
  report.traffic = report.axes.total();
  mark_ = mesh_.traffic();
}

void StepCosts::end_time(StepReport& report, const StateReads::Cost& reading) {
  report.save_seconds = reading.seconds;
  report.exposed_seconds = waited() - waited_mark_ - reading.waited;
  waited_mark_ = waited();
  last_exposed_ = exposed_;
  std::ranges::fill(exposed_, 0.0);
}

void StepCosts::begin_evaluation() { before_evaluation_ = pending(); }

void StepCosts::end_evaluation() {
  mark_ = mesh_.traffic().since(before_evaluation_);
  waited_mark_ = waited();
}

}  // namespace zero
