// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/recorded_mesh.h"

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

RecordedMesh::RecordedMesh(Mesh& mesh) : RecordedMesh(nullptr, &mesh) {}

RecordedMesh::RecordedMesh(Communicator& world)
    : RecordedMesh(std::make_unique<Mesh>(world, MeshShape{}), nullptr) {}

RecordedMesh::RecordedMesh(std::unique_ptr<Mesh> own, Mesh* given)
    : own_(std::move(own)),
      mesh_(own_ ? *own_ : *given),
      axes_{record(mesh_.replicate()), record(mesh_.shard()), record(mesh_.tensor())},
      world_(record(mesh_.world())),
      data_(record(mesh_.data())),
      replica_(record(mesh_.replica())) {}

RecordedMesh::~RecordedMesh() = default;

// Axes of one rank are one communicator: it sends nothing, so it does not matter where it counts.
RecordingCommunicator* RecordedMesh::record(Communicator& communicator) {
  const auto known = std::ranges::find(recorders_, &communicator, &Recorder::inner);
  if (known != recorders_.end()) return known->outer.get();
  recorders_.push_back({&communicator, std::make_unique<RecordingCommunicator>(
                                           communicator, RecordingCommunicator::Keep::counts)});
  return recorders_.back().outer.get();
}

TrafficCounter& RecordedMesh::booked(MeshTraffic& traffic, const Communicator& communicator) const {
  const auto axis = std::find(axes_.begin(), axes_.end(), &communicator);
  return axis == axes_.end() ? traffic.across
                             : traffic.axes[static_cast<std::size_t>(axis - axes_.begin())];
}

Communicator& RecordedMesh::split(Axis axis, const Mesh::Part& part) {
  splits_.push_back({axis, std::make_unique<RecordingCommunicator>(
                               mesh_.split(axis, part), RecordingCommunicator::Keep::counts)});
  return *splits_.back().recorder;
}

MeshTraffic RecordedMesh::traffic() const {
  MeshTraffic traffic;
  for (const Recorder& recorder : recorders_) {
    booked(traffic, *recorder.outer).add(recorder.outer->traffic());
  }
  for (const Split& split : splits_) {
    traffic.axes[static_cast<std::size_t>(split.axis)].add(split.recorder->traffic());
  }
  return traffic;
}

void RecordedMesh::clear() {
  for (const Split& split : splits_) split.recorder->clear();
  for (const Recorder& recorder : recorders_) recorder.outer->clear();
}

}  // namespace zero
