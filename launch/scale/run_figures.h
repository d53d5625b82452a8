// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_fields.h"

namespace zero {

/// What a run of zero_train measured, of its log: medians of the steps behind the warm-up.
struct RunFigures {
  double tokens_per_second = 0;
  double step_seconds = 0;
  double communication_seconds = 0;  ///< of the first rank's collectives in a step
  double exposed_seconds = 0;        ///< for which its compute waited
  std::int64_t planned_bytes = 0;    ///< of the largest rank
  std::int64_t used_bytes = 0;
  bool plan_exact = false;
  int threads = 1;  ///< of a rank
  std::string state_hash{};

  double hidden_seconds() const {
    return communication_seconds > exposed_seconds ? communication_seconds - exposed_seconds : 0;
  }
  nlohmann::ordered_json json() const;
  static RunFigures from(JsonFields& fields);
};

/// Reads the log of a run that is over. Throws zero::Error naming file and line, or that a run of
/// `warmup` steps and one more has not ended.
RunFigures read_run_figures(const std::string& log, std::int64_t warmup);

/// What the limits' run says of a machine (run.profile).
struct MachinePeak {
  double product_rate = 0;  ///< FLOP/s of a GPU, or of all cores of a host
  int cores = 1;            ///< threads behind that rate; 1 on a GPU
};
MachinePeak read_machine_peak(const std::string& log);

}  // namespace zero
