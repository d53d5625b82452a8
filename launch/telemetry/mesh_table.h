// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "device/device.h"

namespace zero {

/// Text on the mesh: the host of each rank, and warnings on axes that cross hosts.
struct MeshTable {
  std::string text;                   ///< empty if the mesh is the shard axis alone
  std::vector<std::string> warnings;  ///< a tensor group that crosses hosts
};

/// Gathers the ranks' hosts. The same on all ranks. Collective; blocks the host.
MeshTable mesh_table(Mesh& mesh, Device& device, const std::string& host);

/// The table for ranks whose hosts are known: hosts[rank] is a name.
MeshTable mesh_table(const MeshShape& shape, const std::vector<std::string>& hosts);

}  // namespace zero
