// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/host_pieces.h"
#include "engine/counted_mesh.h"
#include "engine/engine.h"
#include "engine/gathers.h"
#include "engine/gradient_reducer.h"
#include "engine/graph_capture.h"
#include "engine/leased_gradients.h"
#include "engine/model_state.h"
#include "engine/sharding.h"
#include "engine/state_reads.h"
#include "engine/step_costs.h"
#include "engine/step_sums.h"
#include "engine/unit.h"
#include "engine/waits.h"

namespace zero {

/// The implementation of Engine: which call is allowed when, and what it makes the parts do.
/// engine_core.cpp registers and seals units, engine_lease.cpp walks the schedule, engine_step.cpp
/// ends a step, engine_state.cpp changes states from outside. The parts, each a class of its own:
/// Sharding, Gathers, LeasedGradients, GradientReducer, GraphCapture, StepSums, StepCosts,
/// ModelState, StateReads, ReplicaCheck.
class EngineCore {
 public:
  EngineCore(std::unique_ptr<CountedMesh> mesh, Device& device, EngineOptions options);
  ~EngineCore();

  UnitId add_unit(std::string name, std::vector<ParameterSpec> parameters);
  void require_same(const std::string& key, const std::string& value);
  void seal(const SealOptions& options);

  // Leases and evaluations.
  ParameterLease forward(UnitId unit) { return {*this, enter(unit, false)}; }
  GradientLease backward(UnitId unit) { return {*this, enter(unit, true)}; }
  void repeat(int compute_step, std::size_t nth, const Stream::Work& body);
  void end_lease(int compute_step, bool unwinding) noexcept;
  void discard_graphs();
  void set_evaluation(bool on);
  const Gathers& gathers() const { return *gathers_; }
  LeasedGradients& gradients() { return *gradients_; }
  const Unit& unit_of(const ScheduleStep& step) const { return unit_at(step.use.unit); }

  // The end of a step.
  StepReport step(const StepOptions& options);
  MeshTraffic planned_axes() const;
  void check_replicas();

  // Changes and reads of states from outside.
  void write(std::string_view name, StateKind kind, const View& values);
  void set_state(const LogicalTensor& tensor, std::int64_t begin, const View& values);
  void publish_parameters();
  void publish_gradients();
  void restore(std::int64_t steps_done, std::int64_t steps_skipped);
  void initialise();
  void attach(StateReader* reader);
  void finish_reads(std::string_view call);
  /// The model states. Throws before seal() and after a failure.
  const ModelState& states(std::string_view call) const;
  /// The same behind all submitted work.
  const ModelState& finished_states(std::string_view call);

  Waits& waits() { return waits_; }
  void check_sealed(std::string_view call) const;

 private:
  friend class Engine;  // shows the parts

  /// Selects parameters of a unit.
  enum class Kind : std::uint8_t { trainable, frozen };

  Unit& unit_at(int index) { return units_[static_cast<std::size_t>(index)]; }
  const Unit& unit_at(int index) const { return units_[static_cast<std::size_t>(index)]; }
  EngineResources resources() const;
  void check_agreement(const Schedule& training);
  void allocate(Schedules schedules);

  void check_usable(std::string_view call) const;
  void check_enter(UnitId unit, bool gradients) const;
  void check_between_steps(std::string_view call) const;
  void check_gradients_finished(std::string_view call) const;
  void check_step(const StepOptions& options) const;
  int enter(UnitId unit, bool gradients);
  void end_micro_batch();
  void synchronize();
  void finish_step(StepReport& report, std::int64_t reader_votes);
  void begin_change(std::string_view call);
  void wait_for_peers(std::string_view call);
  void publish(Unit& unit, Kind kind);
  void publish_all(Kind kind);

  std::unique_ptr<CountedMesh> mesh_;
  Communicator& world_;   ///< all ranks
  Communicator& shards_;  ///< the ranks that share this rank's model states
  Device& device_;
  EngineOptions options_;
  DType gradient_dtype_;
  std::unique_ptr<Optimizer> optimizer_;
  Waits waits_;
  std::vector<Unit> units_;
  std::string same_;  ///< lines of require_same()
  GraphCapture graphs_;
  StateReads reads_;
  StepCosts costs_;

  // From seal() on.
  int accumulation_steps_ = 1;
  std::vector<int> order_;  ///< units by first use: the order of updates
  std::unique_ptr<Sharding> sharding_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<Gathers> gathers_;
  std::unique_ptr<LeasedGradients> gradients_;
  std::unique_ptr<StepSums> sums_;
  HostPieces pieces_;
  std::optional<ModelState> state_;

  int cursor_ = 0;       ///< next compute step
  int micro_batch_ = 0;  ///< micro-batches finished in this optimizer step
  bool leased_ = false;
  bool gradients_changed_ = false;  ///< by the user: the norm must be recomputed
  std::exception_ptr failure_;
  std::int64_t steps_done_ = 0;      ///< optimizer steps
  std::int64_t steps_reported_ = 0;  ///< those whose update was skipped too
};

}  // namespace zero
