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
#include "engine/engine_states.h"
#include "engine/graph_capture.h"
#include "engine/lease.h"
#include "engine/live_tensors.h"
#include "engine/ownership.h"
#include "engine/schedule.h"
#include "engine/step_report.h"
#include "partition/parameter_spec.h"

namespace zero {

class EngineCore;

/// The ZeRO engine: owns the model states of registered units, sharded by stage; makes full
/// parameters present around compute through leases; reduces gradients; updates. States: building
/// (add_unit) -> sealed (leases, step). Used by one host thread. `communicator` and `device` must
/// outlive the engine, and the engine its leases and readers. Engines that live at once on one
/// communicator share a device, or the constructor throws. Collective calls are marked; every rank
/// makes the same ones in the same order.
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

  /// What the optimizer steps change: read, written, hashed, published.
  EngineStates& states() { return states_; }
  const EngineStates& states() const { return states_; }

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

  const EngineOptions& options() const;
  /// The communicator of all ranks; its collectives are counted.
  Communicator& communicator();
  /// The mesh's communicators, counted; tensor-parallel layers use these.
  CountedMesh& mesh();
  Device& device();
  /// For a model that moves values of its own below the device's memory: compute's waits for them
  /// that this counts are in StepReport::tier_seconds, and not in exposed_seconds.
  const WaitMeter& waits_for_tiers() const;
  const Schedule& schedule() const;
  /// Unit names, in registration order.
  std::vector<std::string> unit_names() const;
  /// Exposed seconds per compute step of the schedule in the last optimizer step.
  std::vector<double> exposed_by_use() const;
  /// The states and windows that hold values at this point of a step of training
  /// (engine/live_tensors.h). Only outside of evaluations.
  std::vector<LiveTensor> live_tensors() const;
  /// How each axis of the mesh holds every parameter, in registration order
  /// (engine/ownership.h prints it).
  std::vector<ParameterOwnership> ownership() const;
  std::int64_t parameter_count() const;  ///< logical elements, frozen ones included
  std::int64_t padding_count() const;    ///< padding elements of all flat layouts
  /// Bytes that one optimizer step will send along each axis, from the schedule alone. Traffic of
  /// layers along the tensor axis is not included.
  MeshTraffic planned_axes() const;

  /// Expires when the engine ends: for objects that refer to it and say so if they are used longer.
  std::weak_ptr<const void> lifetime() const;

 private:
  friend class EngineParts;           // of tests, which look into it
  std::shared_ptr<EngineCore> core_;  ///< its only owner
  EngineStates states_;
};

}  // namespace zero
