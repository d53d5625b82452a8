// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "collectives/mesh.h"
#include "collectives/recording.h"

namespace zero {

/// Bytes one rank has sent, by the axis they went along. A group that spans several axes (the norm
/// of a mesh goes over the world) is booked under `across`; one that is a single axis, under it.
struct MeshTraffic {
  std::array<TrafficCounter, kAxes> axes{};
  TrafficCounter across{};

  const TrafficCounter& of(Axis axis) const { return axes[static_cast<std::size_t>(axis)]; }
  TrafficCounter total() const;
  MeshTraffic since(const MeshTraffic& earlier) const;
};

/// A mesh whose collectives are counted: what the engine and the layers above it talk through.
class RecordedMesh {
 public:
  /// `mesh` must outlive this.
  explicit RecordedMesh(Mesh& mesh);
  /// A mesh of one axis over `world`, which must outlive this.
  explicit RecordedMesh(Communicator& world);
  ~RecordedMesh();
  RecordedMesh(const RecordedMesh&) = delete;
  RecordedMesh& operator=(const RecordedMesh&) = delete;

  const Mesh& mesh() const { return mesh_; }
  Communicator& world() { return *world_; }
  Communicator& axis(Axis axis) { return *axes_[static_cast<std::size_t>(axis)]; }
  Communicator& data() { return *data_; }
  Communicator& replica() { return *replica_; }
  /// As Mesh::split; booked under `axis`.
  Communicator& split(Axis axis, const Mesh::Part& part);

  MeshTraffic traffic() const;
  /// Where the bytes of one of this mesh's communicators are booked.
  TrafficCounter& booked(MeshTraffic& traffic, const Communicator& communicator) const;
  void clear();

 private:
  explicit RecordedMesh(std::unique_ptr<Mesh> own, Mesh* given);
  RecordingCommunicator* record(Communicator& communicator);

  std::unique_ptr<Mesh> own_;
  Mesh& mesh_;
  struct Recorder {
    Communicator* inner = nullptr;
    std::unique_ptr<RecordingCommunicator> outer;
  };
  std::vector<Recorder> recorders_;
  struct Split {
    Axis axis = Axis::replicate;
    std::unique_ptr<RecordingCommunicator> recorder;
  };
  std::vector<Split> splits_;
  std::array<RecordingCommunicator*, kAxes> axes_{};
  RecordingCommunicator* world_;
  RecordingCommunicator* data_;
  RecordingCommunicator* replica_;
};

}  // namespace zero
