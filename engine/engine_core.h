// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device_twin.h"
#include "device/host_pieces.h"
#include "engine/counted_mesh.h"
#include "engine/engine.h"
#include "engine/gradient_reducer.h"
#include "engine/graph_capture.h"
#include "engine/model_state.h"
#include "engine/sharding.h"
#include "engine/unit.h"
#include "engine/waits.h"
#include "engine/window_arena.h"

namespace zero {

/// The implementation of Engine: leases and the step. engine_core.cpp registers and seals units,
/// engine_lease.cpp drives the schedule, engine_step.cpp ends a step. Beside it, each a class or
/// function of its own: Sharding, GradientReducer, WindowArena, GraphCapture, ModelState,
/// ReplicaCheck, planned_traffic.
class EngineCore {
 public:
  EngineCore(std::unique_ptr<CountedMesh> mesh, Device& device, EngineOptions options);
  ~EngineCore();

  UnitId add_unit(std::string name, std::vector<ParameterSpec> parameters);
  void require_same(const std::string& key, const std::string& value);
  void seal(const SealOptions& options);

  // Leases (engine_lease.cpp).
  ParameterLease forward(UnitId unit) { return {*this, enter(unit, false)}; }
  GradientLease backward(UnitId unit) { return {*this, enter(unit, true)}; }
  View parameter(int step, int index) const;
  View gradient(int step, int index);
  const Unit& unit_of(int step) const { return unit_at(schedule_now().step(step).use.unit); }
  bool accumulates(int step) const { return !schedule_now().step(step).first_gradient; }
  void repeat(int step, std::size_t nth, const Stream::Work& body);
  void end_lease(int step, bool unwinding) noexcept;
  void set_evaluation(bool on);
  KeptPasses kept_passes() const { return graphs_.captured(); }
  void forget_passes();

  // The end of a step, and changes of states from outside (engine_step.cpp).
  StepReport step(const StepOptions& options);
  MeshTraffic planned_axes() const;
  void write(std::string_view name, StateKind kind, const View& values);
  void publish_parameters();
  void publish_gradients();
  void check_replicas();

  /// The model states behind all submitted work. Throws before seal() and after a failure.
  const ModelState& state(std::string_view call);
  /// Excludes the traffic during its lifetime from the next step's report.
  class OutsideStep {
   public:
    explicit OutsideStep(EngineCore& core)
        : core_(core), pending_(core.mesh_->traffic().since(core.traffic_mark_)) {}
    ~OutsideStep() { core_.traffic_mark_ = core_.mesh_->traffic().since(pending_); }
    OutsideStep(const OutsideStep&) = delete;
    OutsideStep& operator=(const OutsideStep&) = delete;

   private:
    EngineCore& core_;
    MeshTraffic pending_;
  };

  const EngineOptions& options() const { return options_; }
  CountedMesh& mesh() { return *mesh_; }
  Device& device() { return device_; }
  HostPieces& pieces() { return pieces_; }
  const std::vector<Unit>& units() const { return units_; }
  const Schedule& schedule() const;
  const std::vector<double>& exposed_by_use() const { return last_exposed_; }
  std::int64_t steps_done() const { return steps_done_; }
  Waits& waits() { return waits_; }
  void check_sealed(std::string_view call) const;

 private:
  /// Selects parameters of a unit.
  enum class Kind : std::uint8_t { trainable, frozen };
  /// The start of a step: units updated so far, and gathers of Schedule::begin already issued.
  struct Renewal {
    std::vector<int> units;
    std::size_t issued = 0;
  };
  /// A schedule and the memory of its windows.
  struct Drive {
    Schedule schedule;
    std::unique_ptr<WindowArena> arena;
  };

  Unit& unit_at(int index) { return units_[static_cast<std::size_t>(index)]; }
  const Unit& unit_at(int index) const { return units_[static_cast<std::size_t>(index)]; }
  Drive& drive() { return evaluating_ ? evaluation_ : training_; }
  const Drive& drive() const { return evaluating_ ? evaluation_ : training_; }
  const Schedule& schedule_now() const { return drive().schedule; }
  EngineResources resources() const;

  std::vector<UnitUse> declared_uses(const SealOptions& options) const;
  void check_uses(const std::vector<UnitUse>& uses) const;
  ScheduleInput schedule_input(const std::vector<UnitUse>& uses) const;
  void order_units(const std::vector<UnitUse>& uses);
  void make_schedules(const std::vector<UnitUse>& uses);
  void check_agreement();
  void allocate();
  void allocate_windows();

  void check_usable(std::string_view call) const;
  void check_enter(UnitId unit, bool gradients) const;
  int enter(UnitId unit, bool gradients);
  void prepare_gradients(const ScheduleStep& step);
  View gradient_base(const ScheduleStep& step) const;
  void zero_padding(const Segment& segment, View base);
  void finish_gradients(const ScheduleStep& step);
  void release(const ScheduleStep& step);
  void issue_gather(int window);
  void issue_begin(int unit, Renewal& renewal);
  void publish(Unit& unit, Kind kind);
  void settle();
  void end_micro_batch();
  void synchronize();

  void check_between_steps(std::string_view call) const;
  void check_gradients_finished(std::string_view call) const;
  void check_step(const StepOptions& options) const;
  ExactSum reduce_norm_and_loss(std::span<const double> losses, ExactSum& loss);
  void reduce_sums(const View& sums, ReduceOp op, std::string_view purpose);
  std::int64_t first_nonfinite();
  void find_nonfinite(std::span<const double> losses, StepReport& report);
  void update(Unit& unit, const StepOptions& options, float gradient_scale);

  std::unique_ptr<CountedMesh> mesh_;
  Communicator& world_;   ///< all ranks
  Communicator& shards_;  ///< the ranks that share this rank's model states
  Device& device_;
  EngineOptions options_;
  DType gradient_dtype_;
  std::unique_ptr<Optimizer> optimizer_;
  Waits waits_;
  std::vector<Unit> units_;
  std::string same_;        ///< lines of require_same()
  std::vector<int> order_;  ///< units by first use: the order of updates
  std::unique_ptr<Sharding> sharding_;
  std::unique_ptr<GradientReducer> reducer_;
  Buffer arena_;           ///< parameter windows
  Buffer gradient_arena_;  ///< gradient windows
  Buffer sums_;            ///< of the host: i64 limbs of norm and loss, and agreement values
  DeviceTwin sums_twin_;   ///< their copy on the device, in which they are summed
  HostPieces pieces_;
  Drive training_;
  Drive evaluation_;
  GraphCapture graphs_;
  std::optional<ModelState> state_;  ///< from seal() on
  bool evaluating_ = false;
  int accumulation_steps_ = 1;

  int cursor_ = 0;                  ///< next compute step
  int micro_batch_ = 0;             ///< micro-batches finished in this optimizer step
  bool gradients_changed_ = false;  ///< by the user: the norm must be recomputed
  bool leased_ = false;
  std::exception_ptr failure_;
  std::int64_t steps_done_ = 0;
  std::int64_t steps_reported_ = 0;
  std::vector<double> exposed_;       ///< per compute step, since the last step()
  std::vector<double> last_exposed_;  ///< of the last optimizer step
  double waited_mark_ = 0;
  MeshTraffic traffic_mark_;
  MeshTraffic evaluation_traffic_;  ///< of the pending step, while an evaluation runs
};

}  // namespace zero
