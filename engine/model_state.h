// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/coded_moments.h"
#include "engine/counted_mesh.h"
#include "engine/engine_options.h"
#include "engine/state_access.h"
#include "engine/unit.h"
#include "partition/logical_tensor.h"

namespace zero {

/// The model states of a sealed engine as logical tensors: listed, read and written. Listing and
/// reading go run by run through visit(); set() changes all that this rank keeps. Runs on the host,
/// except for copy(): all streams must be done with the states. Collective functions are marked.
class ModelState {
 public:
  /// The owners of the states; all outlive this.
  struct Context {
    std::span<Unit> units;
    CountedMesh& mesh;
    Device& device;
    StateAccess& access;
    CodedMoments& coded;  ///< for 8-bit moments
    int moments = 0;      ///< moments that the optimizer keeps
  };
  explicit ModelState(const Context& context) : context_(context) {}
  const Context& context() const { return context_; }

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

  /// Whether this rank is the first of its replica group that holds the run.
  bool is_first(const ParameterSpec& spec, const TensorSlice::Run& run) const;
  /// This rank's shard of one kind of state; empty if the segment has none.
  View shard_values(const Segment& segment, StateKind kind) const;
  /// The values of a parameter among those of its segment's shard, in their local order.
  View owned(const Unit& unit, int index, const View& shard) const;
  /// The dtype of values that read_values() gives: that of the segment's, fp32 for 8-bit moments.
  DType value_dtype(const Segment& segment, StateKind kind) const;
  /// Calls visit(begin, values) for pieces of host memory that cover `values`, a view that visit()
  /// or shard_values() gives for this segment and kind; 8-bit moments are decoded.
  void read_values(const Segment& segment, StateKind kind, const View& values,
                   const StateAccess::Visit& visit) const;

  /// Every logical tensor of one kind, in registration order.
  std::vector<LogicalTensor> tensors(StateKind kind) const;
  /// The same with views of this rank's shard.
  std::vector<HeldTensor> held_tensors(StateKind kind) const;

  /// A parameter of a unit.
  struct Parameter {
    const Unit* unit = nullptr;
    int index = 0;
  };
  /// The parameter of that full name. Throws zero::Error if there is no such parameter or state, or
  /// if `values` is not fp32 or not of the size of the logical tensor.
  Parameter find(std::string_view name, StateKind kind, const View& values) const;
  /// The parameter of a tensor that tensors() listed; throws zero::Error if `tensor` is none.
  Parameter find(const LogicalTensor& tensor) const;

  /// What this rank's shard holds of a state, in the order of the logical tensor.
  std::vector<StateRun> runs(const Unit& unit, int index, StateKind kind) const;
  /// Whether this rank keeps any of the `count` logical elements from `begin` on.
  bool keeps(const Parameter& of, StateKind kind, std::int64_t begin, std::int64_t count) const;
  /// Submits to `stream` the copy of the logical elements from `begin` on, which this rank's shard
  /// must hold as (part of) one run, to `to`: fp32, of the host or the device.
  void copy(const Parameter& from, StateKind kind, std::int64_t begin, const View& to,
            Stream& stream) const;
  /// Sets those of the logical elements from `begin` on that this rank keeps, from `values` (host,
  /// fp32). Blocks until they are set.
  void set(const Unit& unit, int index, StateKind kind, std::int64_t begin,
           const View& values) const;
  /// Fills `out` (host memory, any dtype) with the full logical tensor. If the parameter is sliced,
  /// the bytes of `out` must be a multiple of four. Collective over the replica group.
  void read(const Unit& unit, int index, StateKind kind, View out) const;
  /// EngineStates::hash(). Collective.
  std::uint64_t hash(const PassProgress& progress) const;

 private:
  std::uint64_t hash_of(const Unit& unit, int index, StateKind kind) const;
  void set_coded(const Unit& unit, int index, StateKind kind, const View& codes,
                 const View& values) const;
  View kept_values(const Segment& segment, StateKind kind) const;
  bool has(StateKind kind) const;

  Context context_;
};

}  // namespace zero
