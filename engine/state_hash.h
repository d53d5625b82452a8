// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/model_state.h"

namespace zero {

/// EngineStates::hash(). All streams must be done with the states. Collective.
std::uint64_t state_hash(const ModelState& states);

}  // namespace zero
