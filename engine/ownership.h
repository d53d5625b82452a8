// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zero {

struct MeshShape;
struct Unit;

/// The distribution of one parameter over the mesh, axis by axis, in words.
struct ParameterOwnership {
  std::string name;  ///< full name
  std::vector<std::int64_t> logical_shape;
  std::vector<std::int64_t> local_shape;  ///< of this rank's slice
  std::string replicate;                  ///< "1 rank", "2 copies"
  std::string shard;   ///< by stage: "1 rank", "4 copies", "states, gradients over 4"; states
                       ///< not named are whole on each rank
  std::string tensor;  ///< "1 rank", "2 copies", "along 1 over 2", "along 0 over 4, some in copies"
};

/// The ownership of every parameter, in registration order, from the storage of sealed units.
std::vector<ParameterOwnership> ownership_of(std::span<const Unit> units, const MeshShape& mesh);

/// The parameters as a table, one line each, below a heading.
std::string ownership_table(std::span<const ParameterOwnership> parameters);

}  // namespace zero
