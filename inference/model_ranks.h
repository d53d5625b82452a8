// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/mesh.h"

namespace zero {

/// This rank among those that hold one model together: shard x tensor of a mesh. A group of one
/// rank has no communicator: nothing is exchanged in it.
struct ModelRanks {
  struct Group {
    Communicator* communicator = nullptr;
    int rank = 0;
    int size = 1;
  };
  Group shard;   ///< ranks of other requests, with other parts of the same weights
  Group tensor;  ///< ranks that compute parts of the same rows
  Group all;     ///< rank = shard.rank * tensor.size + tensor.rank

  /// null: this rank alone. The mesh must outlive the result.
  static ModelRanks of(Mesh* mesh) {
    if (mesh == nullptr) return {};
    const auto group = [](Communicator& ranks) {
      return Group{ranks.size() > 1 ? &ranks : nullptr, ranks.rank(), ranks.size()};
    };
    return {group(mesh->shard()), group(mesh->tensor()), group(mesh->replica_group())};
  }
};

}  // namespace zero
