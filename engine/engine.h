// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"
#include "device/device.h"
#include "engine/counted_mesh.h"
#include "engine/engine_options.h"
#include "engine/graph_capture.h"
#include "engine/lease.h"
#include "engine/ownership.h"
#include "engine/schedule.h"
#include "partition/parameter_spec.h"

namespace zero {

class Engine;
class EngineCore;
class HostPieces;
enum class WaitSite : std::uint8_t;

namespace testing {
/// Leaves one of the engine's waits out (engine/waits.h), or none: to see that a lazy or permuted
/// stream notices.
void skip_wait(Engine& engine, std::optional<WaitSite> site);
}  // namespace testing

/// A registered unit.
struct UnitId {
  int index = -1;
  friend bool operator==(UnitId, UnitId) = default;
};

/// One entry of the declared order of a micro-batch.
struct Use {
  UnitId unit;
  Phase phase = Phase::forward;
  bool needs_parameters = true;  ///< false: this backward reads no parameters (an embedding's)
};

struct SealOptions {
  /// The uses of one micro-batch; empty: every unit forward in registration order, then backward in
  /// reverse.
  std::vector<Use> order{};
  int accumulation_steps = 1;
};

struct StepOptions {
  double learning_rate = 0;
  double loss_scale = 1;             ///< gradients are divided by it
  std::span<const double> losses{};  ///< this rank's loss of each micro-batch, already weighted.
                                     ///< step() sums those of all ranks exactly, one rank of each
                                     ///< tensor group. It reads them behind all submitted compute
                                     ///< work, which may still be writing them; they must live
                                     ///< until step() returns
};

/// Thrown by Engine::check_replicas; the same on all ranks.
class ReplicasDiffer : public Error {
 public:
  using Error::Error;
};

/// The result of a step. Equal on all ranks but for the times, and the bytes of unequal slices.
struct StepReport {
  std::int64_t step = 0;     ///< from 1
  double loss = 0;           ///< exact sum of all StepOptions::losses, once for a tensor group
  double gradient_norm = 0;  ///< global, before clipping, after unscaling
  bool clipped = false;
  /// First parameter (in registration order) with a NaN or infinite gradient. The update was
  /// skipped.
  std::optional<std::string> nonfinite{};
  /// The lowest rank whose loss was not finite; else the owner of that gradient; -1: none.
  int nonfinite_rank = -1;
  double exposed_seconds =
      0;                     ///< time the compute stream waited for collectives since the last step
  TrafficCounter traffic{};  ///< bytes this step used, per kind of collective
  MeshTraffic axes{};        ///< the same bytes by the axis of the mesh they went along
};

/// A logical tensor of the training state, and where its elements are.
enum class StateKind : std::uint8_t { parameter, moment0, moment1, gradient };

struct LogicalTensor {
  std::string name;                 ///< full parameter name
  std::vector<std::int64_t> shape;  ///< logical: of the whole tensor at any mesh
  StateKind kind = StateKind::parameter;
  bool trainable = true;
  /// Elements that this rank owns: fp32 views of the device's memory (gradients: their dtype),
  /// which Engine::pieces() brings to host code, and the logical element each starts at. For
  /// parameters these are the master values (frozen ones have none: the compute dtype). At stage 0
  /// every rank owns everything but lists only its shard. Replicas list theirs again, and so do the
  /// ranks of a tensor group that hold the same elements: over all ranks each element is in exactly
  /// one primary part, the one that hashes and files take. A caller that changes values changes all
  /// parts alike.
  struct Part {
    std::int64_t begin = 0;
    View values;
    bool primary = true;
  };
  std::vector<Part> parts;
};

/// The ZeRO engine: owns the model states of registered units, sharded by stage; makes full
/// parameters present around compute through leases; reduces gradients; updates. States: building
/// (add_unit) -> sealed (leases, step). Used by one host thread. `communicator` and `device` must
/// outlive it. Collective calls are marked; every rank makes the same ones in the same order.
class Engine {
 public:
  Engine(Communicator& communicator, Device& device, EngineOptions options);
  /// Over a mesh, which must outlive it: model states are sharded over the shard axis and held
  /// again along the others; parameters with a TensorSlice are this rank's part of the tensor axis.
  Engine(Mesh& mesh, Device& device, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Registers parameters that are gathered and released together. Full names must be unique.
  UnitId add_unit(std::string name, std::vector<ParameterSpec> parameters);
  /// Adds to what seal() compares across ranks: something else that decides bits, such as the
  /// kernels that a model's layers chose. Only before seal().
  void require_same(std::string key, std::string value);
  /// Fixes shards, schedule and every byte; allocates; initialises; compares configuration, units,
  /// schedule hash, kernels, threads and library version of all ranks and throws, naming the
  /// first rank that differs and what differs. Collective.
  void seal(SealOptions options = {});

  /// Takes the next use of the order. Throws zero::Error, before any collective, when `unit` is not
  /// the next one.
  [[nodiscard]] ParameterLease forward(UnitId unit);
  /// Likewise for backward and for Phase::both.
  [[nodiscard]] GradientLease backward(UnitId unit);
  /// Ends the optimizer step: after accumulation_steps micro-batches; norm, clip, update, next
  /// gathers. Collective.
  StepReport step(const StepOptions& options);

  /// Until end_evaluation() micro-batches are forward only: the uses with Phase::forward or
  /// Phase::both, all taken with forward(). Only between optimizer steps.
  void begin_evaluation();
  void end_evaluation();

  /// All zero if the device has no graph capture, or EngineOptions::graphs is false.
  KeptPasses kept_passes() const;
  /// Has leases capture anew: after memory that their bodies work on has moved. The engine's own
  /// stays where it is from seal() to its end, loads and evaluations included. Only between leases.
  void forget_passes();

  int stage() const;
  const EngineOptions& options() const;
  /// Of all ranks; its collectives are counted.
  Communicator& communicator();
  /// The mesh's communicators, counted; tensor-parallel layers use these.
  CountedMesh& mesh();
  Device& device();
  /// How host code reads and writes the views of state().
  HostPieces& pieces();
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
  /// Bytes that one optimizer step will send along each axis, from the schedule alone: the
  /// engine's own, without those of layers along the tensor axis.
  MeshTraffic planned_axes() const;

  /// Every logical tensor of one kind, in registration order; this rank's parts. Waits for the
  /// streams.
  std::vector<LogicalTensor> state(StateKind kind);
  /// Reads a full logical tensor into `out` (host, fp32, as many elements). Collective.
  void read(std::string_view name, StateKind kind, View out);
  /// Replaces a full logical tensor from `values` (host, fp32; equal on all ranks), on every rank
  /// that holds any of it. A gradient: only between the last micro-batch's backward and step(),
  /// which then takes norm and clipping from the written values. Collective.
  void write(std::string_view name, StateKind kind, View values);
  /// After the caller has changed master values through state(parameter): makes compute copies
  /// follow. Collective.
  void publish_parameters();
  /// After the caller has changed finished gradients through state(gradient), between the last
  /// micro-batch's backward and step(): makes copies and the norm follow. Collective.
  void publish_gradients();
  /// Optimizer steps done.
  std::int64_t steps_done() const;
  /// A hash over all logical parameters in name order, master values and both moments; independent
  /// of stage, mesh, layout. Each element is hashed on one rank alone: copies on other ranks
  /// (replicas, at stage 0 every rank), compute copies and gradients are not seen;
  /// check_replicas() compares copies. Tensors that are sliced are put together in staging memory,
  /// one at a time. Collective.
  std::uint64_t state_hash();
  /// Compares by hashes the values that several ranks hold and that must have the same bits: master
  /// values,
  /// moments and compute copies of replicas; parameters without a slice, and ranges that several
  /// ranks hold, along the tensor axis; copies of whole parameters. Throws the same ReplicasDiffer
  /// on all ranks, naming values, parameter, step, the rank that differs and the one it differs
  /// from. Waits for the streams; reads each of this rank's values once, and sends 32 bytes per
  /// parameter and rank. Collective; EngineOptions::replica_check_every makes step() call it.
  void check_replicas();

 private:
  friend void testing::skip_wait(Engine& engine, std::optional<WaitSite> site);
  std::unique_ptr<EngineCore> core_;
};

}  // namespace zero
