// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/counted_mesh.h"

#include <algorithm>

namespace zero {

TrafficCounter MeshTraffic::total() const {
  TrafficCounter sum = across;
  for (const TrafficCounter& axis : axes) sum.add(axis);
  return sum;
}

MeshTraffic MeshTraffic::since(const MeshTraffic& earlier) const {
  MeshTraffic difference;
  for (std::size_t i = 0; i < kAxes; ++i) difference.axes[i] = axes[i].since(earlier.axes[i]);
  difference.across = across.since(earlier.across);
  return difference;
}

CountedMesh::CountedMesh(Mesh& mesh) : CountedMesh(nullptr, &mesh) {}

CountedMesh::CountedMesh(Communicator& world)
    : CountedMesh(std::make_unique<Mesh>(world, MeshShape{}), nullptr) {}

CountedMesh::CountedMesh(std::unique_ptr<Mesh> own, Mesh* given)
    : own_(std::move(own)),
      mesh_(own_ ? *own_ : *given),
      axes_{&counted(mesh_.replicate()), &counted(mesh_.shard()), &counted(mesh_.tensor())},
      world_(counted(mesh_.world())),
      data_(counted(mesh_.data())),
      replica_group_(counted(mesh_.replica_group())) {}

// Axes of one rank share one communicator; it sends nothing, so any axis may count it.
Communicator& CountedMesh::counted(const Communicator& group) {
  const auto known =
      std::ranges::find(counted_, group.implementation(), &Communicator::implementation);
  return known == counted_.end() ? counted_.emplace_back(group.implementation()) : *known;
}

TrafficCounter& CountedMesh::booked(MeshTraffic& traffic, const Communicator& communicator) const {
  const auto split =
      std::ranges::find(splits_, &communicator, &std::pair<Axis, Communicator*>::second);
  if (split != splits_.end()) return traffic.axes[static_cast<std::size_t>(split->first)];
  const auto axis = std::find(axes_.begin(), axes_.end(), &communicator);
  return axis == axes_.end() ? traffic.across
                             : traffic.axes[static_cast<std::size_t>(axis - axes_.begin())];
}

Communicator& CountedMesh::split(Axis axis, const Mesh::Part& part) {
  Communicator& made = counted_.emplace_back(mesh_.split(axis, part).implementation());
  splits_.emplace_back(axis, &made);
  return made;
}

MeshTraffic CountedMesh::traffic() const {
  MeshTraffic traffic;
  for (const Communicator& each : counted_) booked(traffic, each).add(each.traffic());
  return traffic;
}

void CountedMesh::clear() {
  for (Communicator& each : counted_) each.clear_traffic();
}

}  // namespace zero
