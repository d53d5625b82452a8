// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "engine/coded_moments.h"
#include "engine/engine_options.h"
#include "engine/gathers.h"
#include "engine/gradients.h"
#include "engine/graph_capture.h"
#include "engine/model_state.h"
#include "engine/state_access.h"
#include "engine/state_home.h"
#include "engine/state_reads.h"
#include "engine/state_windows.h"
#include "engine/step_costs.h"
#include "engine/step_progress.h"
#include "engine/step_report.h"
#include "engine/step_sums.h"
#include "engine/waits.h"
#include "engine/whole_units.h"

namespace zero {

class GradientLease;
class ParameterLease;

/// The implementation of Engine: what each call makes the parts do, in which order; StepProgress
/// knows which call is allowed when. engine_core.cpp registers units and walks the schedule,
/// engine_seal.cpp seals, engine_step.cpp ends a step. EngineStates works on the same parts.
class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  EngineCore(std::unique_ptr<CountedMesh> mesh, Device& device, EngineOptions options);
  /// Waits for work in flight, which uses the buffers, and may ask the engine: call it while all of
  /// the engine lives.
  void drain() noexcept;

  UnitId add_unit(std::string name, std::vector<ParameterSpec> parameters);
  void require_same(const std::string& key, const std::string& value);
  void seal(const SealOptions& options);

  // Leases and evaluations.
  ParameterLease forward(UnitId unit);
  GradientLease backward(UnitId unit);
  void repeat(int compute_step, std::size_t nth, const Stream::Work& body);
  void end_lease(int compute_step, bool unwinding) noexcept;
  void discard_graphs();
  void set_evaluation(bool on);

  // The end of a step.
  StepReport step(const StepOptions& options);
  void check_replicas();

  /// The parts that seal() makes, each from those above it.
  struct Sealed {
    /// Throws on all ranks, before anything is allocated, if ranks differ in what they seal.
    Sealed(EngineCore& core, std::span<const Use> uses, int accumulation_steps);

    EngineResources resources;
    std::vector<int> order;           ///< units by first use: the order of updates
    std::vector<int> gradient_order;  ///< units in the order of backward
    StateHome home;
    std::unique_ptr<Sharding> sharding;
    GradientReducer reducer;
    Gathers gathers;
    LeasedGradients gradients;
    StepSums sums;
    StateWindows windows;
    StateAccess access;
    CodedMoments coded;
    ModelState state;
    StepProgress progress;
  };
  Unit& unit_at(int index) { return units_[static_cast<std::size_t>(index)]; }
  /// Only from seal() on. sealed() throws before it, usable() after a failure too.
  Sealed& parts() { return *sealed_; }
  Sealed& sealed(std::string_view call);
  Sealed& usable(std::string_view call);
  Waits& waits() { return waits_; }

 private:
  friend class Engine;        // shows the parts
  friend class EngineStates;  // reads and changes them between the calls of a trainer

  ScheduleInputs lay_out_units(std::span<const Use> uses, const Sharding& sharding,
                               const GradientReducer& reducer);
  Schedules prepare(std::span<const Use> uses, const EngineResources& resources, StateHome& home,
                    Sharding& sharding, GradientReducer& reducer);
  void initialise(StateFields written, const PassProgress& progress);
  int enter(UnitId unit, bool gradients);
  void synchronize();
  void require_given(std::int64_t sum, std::int64_t step, const StepOptions& options);
  void publish_all(Gathers::Kind kind);
  void refresh_frozen(const Unit& unit);
  void settle_states(std::string_view call);

  std::unique_ptr<CountedMesh> mesh_;
  Communicator& world_;  ///< all ranks
  Device& device_;
  std::list<DeviceClaim> claims_;  ///< of all communicators
  EngineOptions options_;
  std::unique_ptr<Optimizer> optimizer_;
  Waits waits_;
  std::vector<Unit> units_;
  std::string same_;  ///< lines of require_same()
  GivenValues given_;
  GraphCapture graphs_;
  StateReads reads_;
  StepCosts costs_;
  std::optional<Sealed> sealed_;
};

}  // namespace zero
