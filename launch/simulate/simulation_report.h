// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "launch/simulate/simulation.h"

namespace zero {

/// The simulated step for people: time, FLOP share, exposed communication, bytes, memory, goodput.
std::string text_of(const Simulation& simulation);
/// The same for programs; times in seconds.
nlohmann::ordered_json json_of(const Simulation& simulation);

}  // namespace zero
