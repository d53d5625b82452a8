// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "engine/counted_mesh.h"
#include "engine/gradient_reducer.h"
#include "engine/schedule.h"

namespace zero {

/// The bytes that one optimizer step sends, from sizes alone; a test compares them with what the
/// mesh counts. `schedule` is that of training.
MeshTraffic planned_traffic(const EngineResources& resources, const Sharding& sharding,
                            const GradientReducer& reducer, std::span<const Unit> units,
                            const Schedule& schedule, CountedMesh& mesh);

}  // namespace zero
