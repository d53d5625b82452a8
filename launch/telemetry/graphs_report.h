// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"
#include "launch/config/train_config.h"

namespace zero {

/// What a GPU has kept as graphs by the end of a run, or why nothing, for people.
std::string graphs_text(const KeptPasses& kept, const TrainConfig& config);
/// The same for the log.
nlohmann::ordered_json graphs_json(const KeptPasses& kept, const TrainConfig& config);

}  // namespace zero
