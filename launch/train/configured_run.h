// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace zero {

class Configuration;
struct TrainConfig;
struct TrainFlags;

/// The user's configuration. Refused for everything at once, what does not fit together too.
Configuration read_values(const TrainFlags& flags, int world);
/// What a run of `world` ranks makes of it.
TrainConfig configured(const TrainFlags& flags, Configuration values, int world);

/// The text of --print-config.
std::string printed_config(const TrainFlags& flags, int world);
/// The text of --print-value: as the file and --set give it, which no launcher or world can change.
std::string printed_value(const TrainFlags& flags);
/// The answer to --plan.
struct PrintedPlan {
  std::string text{};
  std::string over_limit{};  ///< by how much the plan exceeds run.memory_limit; empty: it does not
};
PrintedPlan printed_plan(const TrainFlags& flags, int world);

}  // namespace zero
