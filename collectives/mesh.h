// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace zero {

/// Axes of a mesh. Ranks along `replicate` hold the same shards (HSDP), along `shard` different
/// parts of the model states; along `tensor` they compute different parts of each layer.
enum class Axis : std::uint8_t { replicate, shard, tensor };
inline constexpr std::size_t kAxes = 3;
std::string_view name_of(Axis axis);

/// Ranks along each axis. At most one may be -1: the world divided by the other two.
struct MeshShape {
  int replicate = 1;
  int shard = -1;
  int tensor = 1;

  int size(Axis axis) const;
  /// The shape with the -1 replaced, for a world of `world` ranks. If the sizes do not multiply to
  /// `world`, throws zero::Error naming the sizes, the world and sizes that would fit.
  MeshShape resolved(int world) const;
};

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
  struct Group {
    std::array<bool, kAxes> axes{};  // those of more than one rank
    Communicator* communicator = nullptr;
  };
  Communicator& group(std::array<bool, kAxes> axes);

  MeshShape shape_;
  std::array<int, kAxes> index_{};
  Communicator& world_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  std::vector<Group> groups_;
  Communicator& replicate_;
  Communicator& shard_;
  Communicator& tensor_;
  Communicator& data_;
  Communicator& replica_group_;
};

}  // namespace zero
