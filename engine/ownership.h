// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/kernels.h"
#include "engine/unit.h"

namespace zero {

/// What a rank holds of one parameter, axis by axis of the mesh.
struct ParameterOwnership {
  std::string name;  ///< full name
  std::vector<std::int64_t> logical_shape;
  std::vector<std::int64_t> local_shape;  ///< of this rank's slice
  std::string replicate;                  ///< "one copy", "copy 1 of 2"
  std::string shard;   ///< what a rank holds a share of: "states, gradients; parameters replicated"
  std::string tensor;  ///< "sliced along 1", "sliced along 0, some twice", "replicated"
};

/// The parameters as a table, one line each, below a heading.
std::string ownership_table(std::span<const ParameterOwnership> parameters);

/// Where this rank is on the axes that decide what it counts.
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
