// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "device/kernels.h"
#include "engine/unit.h"

namespace zero {

/// Where a rank is on the axes that decide what it counts in the gradient norm.
struct MeshPlace {
  int shard = 0;
  int tensor = 0;
};

/// Elements of this rank's shard of `segment`, a segment of `unit`, that an earlier rank of the
/// tensor axis holds too: parameters without a slice after the first rank, runs of a copy after the
/// first. Null where there are none.
std::shared_ptr<const std::vector<ElementRange>> uncounted_elements(const Unit& unit,
                                                                    const Segment& segment,
                                                                    MeshPlace place);

}  // namespace zero
