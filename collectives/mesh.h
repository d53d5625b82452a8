// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/mesh_shape.h"

namespace zero {

/// The world laid out as replicate x shard x tensor, tensor fastest, so that the ranks of one
/// tensor group are adjacent: rank = (replicate * shards + shard) * tensors + tensor. Owns a
/// communicator for each axis and for their products; a group of all ranks is `world` itself.
class Mesh {
 public:
  /// `world` must outlive the mesh. Collective if several axes have more than one rank, because it
  /// splits. A planning communicator gives a planned mesh. Throws like MeshShape::resolved.
  Mesh(Communicator& world, const MeshShape& shape);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshShape& shape() const { return shape_; }  ///< resolved
  int size(Axis axis) const { return shape_.size(axis); }
  /// This rank's index along the axis.
  int index(Axis axis) const { return index_[static_cast<std::size_t>(axis)]; }

  /// The ranks that differ from this one only along the axes named, in rank order.
  Communicator& world() { return world_; }
  Communicator& replicate() { return replicate_; }
  Communicator& shard() { return shard_; }
  Communicator& tensor() { return tensor_; }
  Communicator& data() { return data_; }  ///< replicate x shard: micro-batches differ
  /// Shard x tensor: one copy of the model.
  Communicator& replica_group() { return replica_group_; }

  /// A communicator of the mesh, with its ranks' numbers in the world.
  struct Group {
    std::string name;  ///< "world", "shard", "replica group"
    const Communicator* communicator = nullptr;
    std::vector<int> ranks{};
  };
  /// The groups above, the world first; one communicator may serve several of them.
  std::vector<Group> groups() const;

  /// This rank's part in a split of an axis.
  struct Part {
    int number = 0;  ///< equal on the ranks of one part
    int rank = 0;    ///< in the part: ranks keep the order of the axis
    int ranks = 1;
  };
  /// The ranks of `axis` that give the same part number, owned by the mesh.
  /// Collective over the axis; on a planned mesh, planned too.
  Communicator& split(Axis axis, const Part& part);

 private:
  struct AxisGroup {
    std::array<bool, kAxes> axes{};  // those of more than one rank
    Communicator* communicator = nullptr;
  };
  Communicator& group(std::array<bool, kAxes> axes);

  MeshShape shape_;
  std::array<int, kAxes> index_{};
  Communicator& world_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  std::vector<AxisGroup> groups_;
  Communicator& replicate_;
  Communicator& shard_;
  Communicator& tensor_;
  Communicator& data_;
  Communicator& replica_group_;
};

}  // namespace zero
