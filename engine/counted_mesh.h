// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/mesh.h"
#include "collectives/operation.h"

namespace zero {

/// Bytes one rank has sent along each axis. `across` counts those of groups that span several axes
/// (the gradient norm goes over the world).
struct MeshTraffic {
  std::array<TrafficCounter, kAxes> axes{};
  TrafficCounter across{};

  const TrafficCounter& of(Axis axis) const { return axes[static_cast<std::size_t>(axis)]; }
  TrafficCounter total() const;
  MeshTraffic since(const MeshTraffic& earlier) const;
};

/// Communicators of one engine on the groups of a mesh: the engine and the layers above use these,
/// so each engine counts its own traffic. Groups of the same ranks (an axis that is the whole
/// world) are one communicator, counted under that axis.
class CountedMesh {
 public:
  /// `mesh` must outlive this.
  explicit CountedMesh(Mesh& mesh);
  /// A mesh of one axis over `world`, which must outlive this.
  explicit CountedMesh(Communicator& world);
  CountedMesh(const CountedMesh&) = delete;
  CountedMesh& operator=(const CountedMesh&) = delete;

  const Mesh& mesh() const { return mesh_; }
  Communicator& world() { return world_; }
  Communicator& axis(Axis axis) { return *axes_[static_cast<std::size_t>(axis)]; }
  Communicator& data() { return data_; }
  Communicator& replica_group() { return replica_group_; }
  /// Like Mesh::split; counted under `axis`.
  Communicator& split(Axis axis, const Mesh::Part& part);

  MeshTraffic traffic() const;
  /// The counter in `traffic` for the bytes of one of this mesh's communicators.
  TrafficCounter& booked(MeshTraffic& traffic, const Communicator& communicator) const;
  void clear();

 private:
  CountedMesh(std::unique_ptr<Mesh> own, Mesh* given);
  Communicator& counted(const Communicator& group);

  std::unique_ptr<Mesh> own_;
  Mesh& mesh_;
  std::list<Communicator> counted_;
  std::vector<std::pair<Axis, Communicator*>> splits_;  // of counted_
  std::array<Communicator*, kAxes> axes_;
  Communicator& world_;
  Communicator& data_;
  Communicator& replica_group_;
};

}  // namespace zero
