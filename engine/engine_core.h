// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device_twin.h"
#include "device/host_pieces.h"
#include "engine/engine.h"
#include "engine/gradient_reducer.h"
#include "engine/recorded_mesh.h"
#include "engine/sharding.h"
#include "engine/tensor_cover.h"
#include "engine/unit.h"
#include "engine/waits.h"
#include "engine/window_arena.h"

namespace zero {

/// What Engine hides: the units and their storage, the schedules and where in them the run is, and
/// the parts that do the work. engine_core.cpp builds and seals, engine_agreement.cpp
/// compares ranks, engine_lease.cpp drives the schedule, engine_passes.cpp repeats what
/// leases submit, engine_step.cpp ends a step, engine_state.cpp enumerates, engine_hash.cpp hashes.
class EngineCore {
 public:
  EngineCore(std::unique_ptr<RecordedMesh> mesh, Device& device, EngineOptions options);
  ~EngineCore();

  UnitId add_unit(std::string name, std::vector<ParameterSpec> parameters);
  void require_same(std::string key, std::string value);
  void seal(SealOptions options);

  // Leases (engine_lease.cpp).
  ParameterLease forward(UnitId unit);
  GradientLease backward(UnitId unit);
  View parameter(int step, int index) const;
  View gradient(int step, int index);
  const Unit& unit_of(int step) const;
  bool accumulates(int step) const;
  void end_lease(int step, bool unwinding, bool gradients) noexcept;
  void set_evaluation(bool on);

  // Passes that are kept (engine_passes.cpp).
  void repeat(int step, std::size_t nth, const Stream::Work& body);
  KeptPasses kept_passes() const;
  void forget_passes();

  // The end of a step (engine_step.cpp).
  StepReport step(const StepOptions& options);
  MeshTraffic planned_axes() const;

  // State (engine_state.cpp, engine_hash.cpp).
  std::vector<LogicalTensor> state(StateKind kind);
  void read(std::string_view name, StateKind kind, View out);
  void write(std::string_view name, StateKind kind, View values);
  void publish_parameters();
  void publish_gradients();
  std::uint64_t state_hash();

  // Copies of values on several ranks (engine_replicas.cpp).
  void check_replicas();

  const EngineOptions& options() const { return options_; }
  RecordedMesh& mesh() { return *mesh_; }
  Device& device() { return device_; }
  HostPieces& pieces() { return pieces_; }
  const Schedule& schedule() const;
  const std::vector<Unit>& units() const { return units_; }
  std::vector<std::string> unit_names() const;
  std::vector<ParameterOwnership> ownership() const;
  const std::vector<double>& exposed_by_use() const { return last_exposed_; }
  std::int64_t steps_done() const { return steps_done_; }
  Waits& waits() { return waits_; }

 private:
  /// Which parameters of a unit.
  enum class Kind : std::uint8_t { trainable, frozen };
  /// How far the start of a step is: which units have their new values, and how many of the gathers
  /// that come before the first micro-batch are issued.
  struct Renewal {
    std::vector<int> units;
    std::size_t issued = 0;
  };
  /// What a device keeps of what a lease submits, and which gradients that asks for.
  struct Pass {
    std::string name;
    std::unique_ptr<CapturedGraph> kept;
    std::vector<char> before;  ///< the unit's asked_ when the work was first made
    std::vector<char> after;
  };
  /// A schedule, the guards of its windows, and the passes of each of its steps.
  struct Drive {
    Schedule schedule;
    std::unique_ptr<WindowArena> arena;
    std::vector<std::deque<Pass>> passes;
  };

  void check_sealed(std::string_view call) const;
  void check_between_steps(std::string_view call) const;
  void check_gradients_finished(std::string_view call) const;
  void check_step(const StepOptions& options) const;
  std::vector<UnitUse> declared_uses(const SealOptions& options) const;
  void check_uses(const std::vector<UnitUse>& uses) const;
  ScheduleInput schedule_input(const std::vector<UnitUse>& uses) const;
  void make_schedules(const std::vector<UnitUse>& uses);
  void plan_updates(Unit& unit) const;
  void initialise_values();
  void initialise_segment(Unit& unit, Segment& segment);
  void allocate_windows();
  void check_agreement();
  std::string describe() const;

  int enter(UnitId unit, bool gradients);
  void prepare_gradients(const ScheduleStep& step);
  View gradient_base(const ScheduleStep& step) const;
  void zero_padding(const Segment& segment, View base);
  void finish_gradients(const ScheduleStep& step);
  void issue_gather(int window);
  void issue_begin(int unit, Renewal& renewal);
  void publish(Unit& unit, Kind kind);
  void settle();
  void end_micro_batch();
  void synchronize();
  void raise_failure();
  Drive& drive() { return evaluating_ ? evaluation_ : training_; }
  const Drive& drive() const { return evaluating_ ? evaluation_ : training_; }

  ExactSum reduce_norm_and_loss(std::span<const double> losses, ExactSum& loss);
  void reduce_sums(const View& sums, ReduceOp op, std::string_view purpose);
  bool has_nonfinite(const View& values);
  void find_nonfinite(std::span<const double> losses, StepReport& report);
  void update(Unit& unit, const StepOptions& options, float gradient_scale);
  View own_part(const Segment& segment, StateKind kind) const;
  View kept_values(const Segment& segment, StateKind kind) const;
  using OwnRun = std::function<void(const TensorSlice::Run& run, const View& values)>;
  void for_own_runs(const Unit& unit, int index, const View& own, const OwnRun& visit) const;
  LogicalTensor own_tensor(const Unit& unit, int index, StateKind kind) const;
  bool is_first_copy(const ParameterSpec& spec, const TensorSlice::Run& run) const;
  void copy_out(const View& values, const View& to);
  void gather_tensor(const Unit& unit, int index, StateKind kind, View out);
  void assemble_tensor(const Unit& unit, int index, StateKind kind, View out);
  std::uint64_t hash_of(const Unit& unit, int index, StateKind kind);

  /// Values of a parameter that several ranks hold.
  struct Copied {
    const Unit* unit = nullptr;
    int index = 0;        ///< of the parameter in the unit
    int kind = 0;         ///< master, first and second moment, compute copy
    SharedRange range{};  ///< along the tensor axis: who holds them; of a sliced parameter, where
  };
  using ValuesOf = std::function<View(const Unit& unit, int index, int kind)>;
  View own_values(const Segment& segment, int kind) const;
  View whole_values(const Segment& segment, const Placement& placement, int kind) const;
  void for_own_values(const Copied& copied,
                      const std::function<void(std::int64_t, const View&)>& visit) const;
  std::vector<Copied> tensor_copies() const;
  std::string differs(const Unit& unit, int index, int kind, int rank, int from) const;
  std::string compare_along(Axis axis, const ValuesOf& values);
  std::string compare_tensor_copies();
  std::string locate(const Copied& copied, int first, int other);
  std::pair<int, int> find_parameter(std::string_view name) const;

  std::unique_ptr<RecordedMesh> mesh_;
  Communicator& world_;   ///< all ranks
  Communicator& shards_;  ///< the ranks that share this rank's model states
  Device& device_;
  EngineOptions options_;
  DType gradient_dtype_;
  std::unique_ptr<Optimizer> optimizer_;
  Waits waits_;
  std::vector<Unit> units_;
  std::vector<std::pair<std::string, std::string>> same_;  ///< what models want compared
  std::vector<int> order_;    ///< units by first use: the order of updates
  std::vector<char> shared_;  ///< per unit: its gradient is summed over several uses
  std::vector<std::vector<SharedRange>> shared_ranges_;  ///< of each parameter in order
  std::unique_ptr<Sharding> sharding_;
  std::unique_ptr<GradientReducer> reducer_;
  Buffer arena_;           ///< parameter windows
  Buffer gradient_arena_;  ///< gradient windows
  Buffer sums_;            ///< of the host: i64 limbs of norm and loss, and agreement values
  DeviceTwin sums_twin_;   ///< where they are summed
  HostPieces pieces_;
  Drive training_;
  Drive evaluation_;
  bool sealed_ = false;
  bool evaluating_ = false;
  int accumulation_steps_ = 1;

  int cursor_ = 0;                  ///< next compute step
  int micro_batch_ = 0;             ///< micro-batches finished in this optimizer step
  bool gradients_changed_ = false;  ///< by the user, so that the norm must be counted anew
  bool leased_ = false;
  std::vector<std::vector<char>>
      asked_;  ///< per unit and parameter: its gradient was asked for in this micro-batch
  std::vector<Event> rewritable_;  ///< per unit without a gradient window: its reduce is done
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
