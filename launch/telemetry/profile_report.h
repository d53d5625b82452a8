// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"
#include "launch/telemetry/profile.h"

namespace zero {

/// Tells a profile the bytes that the optimizer's updates moved: master values, moments, the
/// gradient and the compute copy of every owned element, once a step.
void add_update_bytes(Profile& profile, Engine& engine);

/// What ran beside the compute stream, per step; empty where nothing did.
std::string collectives_table(const Profile& collectives, std::int64_t steps);
nlohmann::ordered_json collectives_json(const Profile& collectives);

}  // namespace zero
