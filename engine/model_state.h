// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "device/host_pieces.h"
#include "engine/engine.h"
#include "engine/unit.h"

namespace zero {

/// The model states of a sealed engine as logical tensors: listed, read, written and hashed.
/// Listing, reading and hashing go run by run through visit(); write() changes all that this rank
/// keeps. Runs on the host: both streams must be done with the states. Collective functions are
/// marked.
class ModelState {
 public:
  /// The owners of the states; all outlive this.
  struct Place {
    std::span<Unit> units;
    CountedMesh& mesh;
    Device& device;
    HostPieces& pieces;
    int moments = 0;  ///< moments that the optimizer keeps
  };
  explicit ModelState(const Place& place) : place_(place) {}
  const Place& place() const { return place_; }

  /// A run of elements that are contiguous in the logical tensor and on this rank, and a view of
  /// their values in device memory.
  using Visit = std::function<void(const TensorSlice::Run& run, const View& values)>;
  /// Calls `visit` for the runs of one state of a parameter in this rank's shard, in order.
  void visit(const Unit& unit, int index, StateKind kind, const Visit& visit) const {
    visit_within(unit, index, shard_values(unit.segment_of(index), kind), visit);
  }
  /// The same for any values laid out like the shard of the parameter's segment; no call if they
  /// are empty.
  void visit_within(const Unit& unit, int index, const View& shard, const Visit& visit) const;

  /// This rank's shard of one kind of state; empty if the segment has none.
  View shard_values(const Segment& segment, StateKind kind) const;
  /// The values of a parameter among those of its segment's shard, in their local order.
  View owned(const Unit& unit, int index, const View& shard) const;
  /// to = values of the device, converted; `to` is host memory.
  void copy_out(const View& values, const View& to) const;

  /// Every logical tensor of one kind, in registration order, with this rank's parts.
  std::vector<LogicalTensor> tensors(StateKind kind) const;

  /// A parameter by its full name.
  struct Parameter {
    Unit* unit = nullptr;
    int index = 0;
  };
  /// Throws zero::Error if there is no such parameter or state, or if `values` is not fp32 or not
  /// of the size of the logical tensor.
  Parameter find(std::string_view name, StateKind kind, const View& values) const;
  /// Fills `out` (host memory, any dtype) with the full logical tensor. If the parameter is sliced,
  /// the bytes of `out` must be a multiple of four. Collective over the replica.
  void read(const Unit& unit, int index, StateKind kind, View out) const;
  /// Sets the elements that this rank holds from the logical tensor `values` (host, fp32).
  void write(const Unit& unit, int index, StateKind kind, const View& values) const;
  /// Engine::state_hash(). Collective.
  std::uint64_t hash() const;

 private:
  View kept_values(const Segment& segment, StateKind kind) const;
  bool is_primary(const ParameterSpec& spec, const TensorSlice::Run& run) const;
  std::uint64_t hash_of(const Unit& unit, int index, StateKind kind) const;

  Place place_;
};

}  // namespace zero
