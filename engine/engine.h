// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"
#include "engine/counted_mesh.h"
#include "engine/engine_options.h"
#include "engine/graph_capture.h"
#include "engine/lease.h"
#include "engine/ownership.h"
#include "engine/schedule.h"
#include "engine/seal_options.h"
#include "engine/step_report.h"
#include "partition/logical_tensor.h"
#include "partition/parameter_spec.h"

namespace zero {

class EngineCore;
class HostAccess;
class StateReader;

/// The ZeRO engine: owns the model states of registered units, sharded by stage; makes full
/// parameters present around compute through leases; reduces gradients; updates. States: building
/// (add_unit) -> sealed (leases, step). Used by one host thread. `communicator` and `device` must
/// outlive the engine, and the engine its leases and readers. Engines that live at once on one
/// communicator share a device, or the constructor throws. A planning device has no values: calls
/// that take or give some throw. Collective calls are marked; every rank makes the same ones in the
/// same order.
class Engine {
 public:
  Engine(Communicator& communicator, Device& device, EngineOptions options);
  /// Over a mesh, which must outlive the engine: model states are sharded over the shard axis and
  /// replicated along the others; a parameter with a TensorSlice is this rank's part along the
  /// tensor axis.
  Engine(Mesh& mesh, Device& device, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Registers parameters that are gathered and released together. Full names must be unique.
  UnitId add_unit(std::string name, std::vector<ParameterSpec> parameters);
  /// Adds a line to those that seal() compares across ranks, for another choice that decides bits,
  /// such as the kernels of a model's layers. Only before seal().
  void require_same(std::string key, std::string value);
  /// Fixes shards, schedule and every byte; allocates; initialises; compares configuration, units,
  /// schedule hash, kernels, threads and library version of all ranks and throws, naming the
  /// first rank that differs and what differs. Collective.
  void seal(SealOptions options = {});

  /// Takes the next use of the order, of Phase::forward or Phase::recompute. Throws zero::Error,
  /// before any collective, if `unit` is not the next one.
  [[nodiscard]] ParameterLease forward(UnitId unit);
  /// Likewise for backward and for Phase::both.
  [[nodiscard]] GradientLease backward(UnitId unit);
  /// Ends the optimizer step after accumulation_steps micro-batches: gradient norm, clipping,
  /// update and the gathers that come next. Collective.
  StepReport step(const StepOptions& options);

  /// Makes micro-batches until end_evaluation() forward only: the uses with Phase::forward or
  /// Phase::both, all taken with forward(). Only between optimizer steps. Collective: on some ranks
  /// alone it is an error at every stage.
  void begin_evaluation();
  void end_evaluation();

  /// All zero if the device has no graph capture, or EngineOptions::graphs is false.
  CaptureCounts captured_graphs() const;
  /// Discards captured graphs, so that leases capture again: call it after memory of the caller's
  /// that their bodies use has moved. The engine's own memory stays in place from seal() to its
  /// end. Only between leases.
  void discard_graphs();

  int stage() const;
  const EngineOptions& options() const;
  /// The communicator of all ranks; its collectives are counted.
  Communicator& communicator();
  /// The mesh's communicators, counted; tensor-parallel layers use these.
  CountedMesh& mesh();
  Device& device();
  /// Access of host code to the views of state().
  HostAccess& host_access();
  const Schedule& schedule() const;
  /// Unit names, in registration order.
  std::vector<std::string> unit_names() const;
  /// Exposed seconds per compute step of the schedule in the last optimizer step.
  std::vector<double> exposed_by_use() const;
  /// How each axis of the mesh holds every parameter, in registration order
  /// (engine/ownership.h prints it).
  std::vector<ParameterOwnership> ownership() const;
  std::int64_t parameter_count() const;  ///< logical elements, frozen ones included
  std::int64_t padding_count() const;    ///< padding elements of all flat layouts
  /// Bytes that one optimizer step will send along each axis, from the schedule alone. Traffic of
  /// layers along the tensor axis is not included.
  MeshTraffic planned_axes() const;

  /// Every logical tensor of one kind, in registration order: the same list on all ranks. Empty if
  /// the optimizer keeps no such moment; frozen parameters are parameters only.
  std::vector<LogicalTensor> tensors(StateKind kind) const;
  /// What this rank's shard holds of a tensor that tensors() lists, ascending.
  std::vector<StateRun> runs(const LogicalTensor& tensor) const;
  /// Whether this rank keeps any of the `count` elements from `begin` on: whether set_state() would
  /// use their values.
  bool keeps(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count) const;
  /// Submits to `stream` (compute or transfer) the copy of the elements from `begin` on, which must
  /// lie in one of runs(tensor), to `to`: fp32, host or device memory; exact. No waiting: `stream`
  /// must be ordered after the last change of the states.
  void copy_state(const LogicalTensor& tensor, std::int64_t begin, const View& to,
                  Stream& stream) const;
  /// Sets the elements from `begin` on, as many as `values` (host, fp32) has, in all places where
  /// this rank keeps any of them; the others are left out. Blocks until they are set; time grows
  /// with the number of values. Not for gradients. Only between optimizer steps; not collective,
  /// so all ranks must have called finish_reads() if a reader is attached. Each rank sets the
  /// elements that it keeps; of a parameter, whose other copies publish_parameters() (collective,
  /// after the last of them) makes, those of its runs() suffice.
  void set_state(const LogicalTensor& tensor, std::int64_t begin, const View& values);
  /// Sets the number of optimizer steps done, and of those skipped since a gradient was not finite,
  /// to those of the states just set. Only between optimizer steps. Finishes reads. Collective.
  void restore(std::int64_t steps_done, std::int64_t steps_skipped = 0);
  /// Initial values, zero moments and no step done, as after seal(). Only between optimizer steps.
  /// Finishes reads. Collective.
  void initialise();

  /// Spreads the rounds of `reader` over the compute steps of the next optimizer step; null: none.
  /// Replaces the reader before it, which may first end its work (StateReader::replaced); its
  /// rounds that are not submitted then are dropped. `reader`
  /// must stay valid until it is replaced. Only between optimizer steps, but null at any time; all
  /// ranks attach at the same point.
  void attach(StateReader* reader);
  /// Submits the rounds of the attached reader that are left, at once. Not while a lease is held.
  /// Collective.
  void finish_reads();

  /// Seconds for which attached readers have held training up so far: StepReport::save_seconds of
  /// all steps, and finish_reads().
  double save_seconds() const;

  /// The same tensors with views of this rank's shard. Waits for the compute and communication
  /// streams.
  std::vector<HeldTensor> state(StateKind kind);
  /// Reads a full logical tensor into `out` (host, fp32, as many elements). Collective.
  void read(std::string_view name, StateKind kind, View out);
  /// Replaces a full logical tensor from `values` (host, fp32; equal on all ranks), on every rank
  /// that holds any of it. A gradient: only between the last micro-batch's backward and step(),
  /// which then takes norm and clipping from the written values. Finishes reads. Collective.
  void write(std::string_view name, StateKind kind, View values);
  /// Updates compute copies after the caller has changed master values through state(parameter) or
  /// set_state(). Finishes reads. Collective.
  void publish_parameters();
  /// Updates copies and the norm after the caller has changed finished gradients through
  /// state(gradient), between the last micro-batch's backward and step(). Collective.
  void publish_gradients();
  /// Optimizer steps whose update was made.
  std::int64_t steps_done() const;
  /// Optimizer steps whose update was skipped (StepReport::nonfinite).
  std::int64_t steps_skipped() const;
  /// A hash over all logical parameters in name order, master values and both moments; independent
  /// of stage, mesh, layout. One rank hashes each element: copies on other ranks (replicas, at
  /// stage 0 every rank), compute copies and gradients are not hashed; check_replicas() compares
  /// copies. Sliced tensors are assembled in staging memory, one at a time. Collective.
  std::uint64_t state_hash();
  /// Compares by hashes the values that several ranks hold and that must have the same bits: master
  /// values, moments and compute copies of replicas; parameters without a slice, and ranges that
  /// several ranks hold, along the tensor axis; copies of whole parameters. Throws the same
  /// ReplicasDiffer on all ranks, naming values, parameter, step, the rank that differs and the one
  /// it differs from. Waits for the streams; reads each of this rank's values once, and sends 32
  /// bytes per parameter and rank. Collective; EngineOptions::replica_check_every makes step() call
  /// it.
  void check_replicas();

  /// Expires when the engine ends: for objects that refer to it and say so if they are used longer.
  std::weak_ptr<const void> lifetime() const;

 private:
  friend class EngineParts;           // of tests, which look into it
  std::shared_ptr<EngineCore> core_;  ///< its only owner
};

}  // namespace zero
