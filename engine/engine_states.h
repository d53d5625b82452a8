// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_options.h"
#include "partition/logical_tensor.h"

namespace zero {

class EngineCore;
class HostAccess;
class ModelState;
class StateReader;
class Stream;
struct PieceStates;
struct Unit;

/// The model states of a sealed Engine, as logical tensors that are the same at any stage and mesh:
/// lists, reads and changes them, and lends them to a StateReader while training goes on.
/// Engine::states() gives it; it ends with its engine. Used by the engine's host thread. A planning
/// device has no values: calls that take or give some throw. Collective calls are marked; every
/// rank makes the same ones in the same order.
class EngineStates {
 public:
  explicit EngineStates(EngineCore& core) : core_(core) {}
  EngineStates(const EngineStates&) = delete;
  EngineStates& operator=(const EngineStates&) = delete;

  /// Every logical tensor of one kind, in registration order: the same list on all ranks. Empty if
  /// the optimizer keeps no such moment; frozen parameters are parameters only.
  std::vector<LogicalTensor> tensors(StateKind kind) const;
  /// What this rank's shard holds of a tensor that tensors() lists, ascending.
  std::vector<StateRun> runs(const LogicalTensor& tensor) const;
  /// Whether this rank keeps any of the `count` elements from `begin` on: whether set() would use
  /// their values.
  bool keeps(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count) const;
  /// Optimizer steps whose update was made.
  std::int64_t steps_done() const;
  /// Optimizer steps whose update was skipped (StepReport::nonfinite).
  std::int64_t steps_skipped() const;

  /// Reads a full logical tensor into `out` (host, fp32, as many elements). Collective.
  void read(std::string_view name, StateKind kind, View out);
  /// Replaces a full logical tensor from `values` (host, fp32; equal on all ranks), on every rank
  /// that holds any of it. A gradient: only between the last micro-batch's backward and step(),
  /// which then takes norm and clipping from the written values. Finishes reads. Collective.
  void write(std::string_view name, StateKind kind, View values);

  /// Submits to `stream` (compute or transfer) the copy of the elements from `begin` on, which must
  /// lie in one of runs(tensor), to `to`: fp32, host or device memory; exact. No waiting: `stream`
  /// must be ordered after the last change of the states.
  void copy(const LogicalTensor& tensor, std::int64_t begin, const View& to, Stream& stream) const;
  /// Sets the elements from `begin` on, as many as `values` (host, fp32) has, in all places where
  /// this rank keeps any of them; the others are left out. Blocks until they are set; time grows
  /// with the number of values. Not for gradients. Only between optimizer steps; not collective,
  /// so all ranks must have called finish_reads() if a reader is attached. Each rank sets the
  /// elements that it keeps. Of a parameter those of its runs() suffice: publish_parameters(),
  /// collective, after the last of them, makes the other copies.
  void set(const LogicalTensor& tensor, std::int64_t begin, const View& values);

  /// The tensors of one kind with views of this rank's shard, to read and to change. Waits for the
  /// compute and communication streams. Throws zero::Error if any of them lives in a file.
  std::vector<HeldTensor> held(StateKind kind);
  /// Access of host code to the views of held().
  HostAccess& host_access();

  /// Updates compute copies after the caller has changed master values through held(parameter) or
  /// set(). Finishes reads. Collective.
  void publish_parameters();
  /// Updates copies and the norm after the caller has changed finished gradients through
  /// held(gradient), between the last micro-batch's backward and step(). Collective.
  void publish_gradients();
  /// Sets the number of optimizer steps done, and of those skipped since a gradient was not finite,
  /// to those of the states just set. Only between optimizer steps. Finishes reads. Collective.
  void restore(std::int64_t steps_done, std::int64_t steps_skipped = 0);
  /// Initial values, zero moments and no step done, as after seal(). Only between optimizer steps.
  /// Finishes reads. Collective.
  void initialise();

  /// Spreads the rounds of `reader` over the compute steps of the next optimizer step; null: none.
  /// Replaces the reader before it, which may first end its work (StateReader::replaced); its
  /// rounds that are not submitted then are dropped. `reader` must stay valid until it is replaced.
  /// Only between optimizer steps, but null at any time; all ranks attach at the same point.
  void attach(StateReader* reader);
  /// Submits the rounds of the attached reader that are left, at once. Not while a lease is held.
  /// Collective.
  void finish_reads() { finish_reads("finish_reads"); }
  /// Seconds for which attached readers have held training up so far: StepReport::save_seconds of
  /// all steps, and finish_reads().
  double save_seconds() const;

  /// Why the states of this rank are lost: its disk could not read or write those of a file
  /// (TierOptions), with folder, offset and reason. Empty: they are not. All ranks throw that as
  /// the same ValuesLost from their next step(), begin_evaluation() or end_evaluation(), from
  /// attach() of a reader, and from the calls here that are collective and read or change states;
  /// until then values may be anything. Any thread.
  std::string failure() const;

  /// A hash over all logical parameters in name order, master values and both moments; independent
  /// of stage, mesh, layout. One rank hashes each element: copies on other ranks (replicas, at
  /// stage 0 every rank), compute copies and gradients are not hashed; check_replicas() compares
  /// copies. Sliced tensors are assembled in staging memory, one at a time. Collective.
  std::uint64_t hash(const PassProgress& progress = {});
  /// Compares by hashes the values that several ranks hold and that must have the same bits: master
  /// values, moments and compute copies of replicas; parameters without a slice, and ranges that
  /// several ranks hold, along the tensor axis; copies of whole parameters. Throws the same
  /// ReplicasDiffer on all ranks, naming values, parameter, step, the rank that differs, the one it
  /// differs from, and their hosts. Waits for the streams; reads each of this rank's values once,
  /// and sends 32 bytes per parameter and rank. Collective; EngineOptions::replica_check_every
  /// makes step() call it.
  void check_replicas();

 private:
  const ModelState& finished(std::string_view call);
  const ModelState& finished_values(std::string_view call);
  void require_values(std::string_view call) const;
  void finish_reads(std::string_view call);
  void begin_change(std::string_view call);
  void publish(const Unit& unit, const PieceStates& states);

  EngineCore& core_;
};

}  // namespace zero
