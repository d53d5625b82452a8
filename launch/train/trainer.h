// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/agreement.h"
#include "collectives/listener.h"
#include "device/stream.h"
#include "engine/step_report.h"
#include "launch/flight/run_phases.h"
#include "launch/memory/run_memory.h"
#include "launch/telemetry/run_log.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/data_check.h"
#include "launch/train/loss_scaling.h"
#include "launch/train/plan.h"
#include "launch/train/run_checkpoints.h"
#include "launch/train/training_state.h"
#include "model/unit_listener.h"

namespace zero {

class Batches;
class Console;
class Instruments;
class MemoryTraceFile;
class RunLock;

/// The objects that a trainer works with; all must outlive it.
struct TrainerParts {
  const TrainConfig& config;
  const Batches& batches;
  Mesh& mesh;  ///< of the configuration's shape
  Device& device;
  Console& console;
  RunLog* log = nullptr;  ///< the first rank's; null elsewhere
  /// Of run.checkpoint.folder, looked at before each save. The first rank's; null elsewhere.
  const RunLock* folder_lock = nullptr;
  RankPlans plans{};              ///< memory of ranks; the trainer plans its own if it is not there
  bool cores_are_shared = false;  ///< ranks take turns on cores: measured waits include that
  /// Observer of the run; the device and the mesh report to it. Null: none.
  Instruments* instruments = nullptr;
  MemoryTraceFile* memory_trace = nullptr;      ///< told of the run's memory; null: none
  std::vector<UnitListener*> unit_listeners{};  ///< told of the model's units
  std::vector<PhaseListener*> phase_listeners{};
  RunProgress* progress = nullptr;  ///< told of steps, weights and checkpoints; null: none
  Signals* signals = nullptr;       ///< of this process; null: none arrive
  Signals::Time started = std::chrono::steady_clock::now();  ///< of the program
  files::FileSystem& disk = files::disk();                   ///< asked for room before step 1
};

/// Runs `work`, which throws the same ReplicasDiffer on all ranks or on none.
template <typename Work>
auto with_agreed_failure(const Work& work) {
  try {
    return work();
  } catch (const ReplicasDiffer& error) {
    throw AgreedError(error.what());
  }
}

/// One training run: plan, start or resumption, steps, validation, checkpoints, weights, final
/// line. Every part is collective. Throws AgreedError if all ranks know of a failure,
/// zero::Error if only one does.
class Trainer {
 public:
  explicit Trainer(const TrainerParts& parts);
  /// Returns the exit status: 0, or 128 + the signal that has ended the run early.
  int run();

 private:
  /// Whether values are below the device's memory.
  bool has_tiers() const {
    return sum_of(planned_.file) > 0 ||
           (of_gpu() && (uses_host(config_.engine.tiers) || config_.recompute.plan.inputs_on_host));
  }
  bool of_gpu() const { return config_.run.device == DeviceKind::cuda; }
  /// Tells of a phase, memory's observers too.
  void begin_phase(std::int64_t step, std::string_view name);
  void show_mesh();
  void load();
  void save();
  Decision train();
  Decision train_step(std::int64_t step);
  /// Trains the micro-batches of a step, as far as the host submits them.
  void train_micro_batches(std::int64_t step, double scale);
  Decision check_memory(Decision decision);
  /// Waits for what moves to tiers behind the last step, and counts the time.
  void settle_tiers();
  void handle_nonfinite(const StepReport& report);
  void save_nonfinite(const StepReport& report);
  /// Tells of what checks of compute have found since the last step, and ends the run if they say.
  void tell_findings();
  int end_early(const Decision& decision);
  void log_step(const StepReport& report, const StepOptions& options, double seconds);
  void show_progress(const StepReport& report, double seconds);
  void finish();
  void write_trace_file();
  /// Prints the profile's table. Returns the profile for the log's last line, null if there is
  /// none. Collective.
  nlohmann::ordered_json finish_profile();
  std::optional<double> validate();

  const TrainConfig& config_;
  const Batches& batches_;
  Mesh& mesh_;
  Communicator& communicator_;  // all ranks
  Device& device_;
  Console& console_;
  bool cores_are_shared_;
  Instruments* instruments_;
  RunProgress* progress_;
  RunPhases phases_;
  MemoryUse planned_;
  std::vector<double> losses_;  // of this rank's micro-batches; written by the compute stream
  RunMemory memory_;            // ends behind the buffers
  UnitListeners unit_listeners_;
  TrainingState training_state_;
  TrainingLog log_;
  RunCheckpoints checkpoints_;
  DataCheck data_check_;
  LossScaling loss_scaling_;
  std::array<Event, 2> trained_;        // recorded after the micro-batches, alternating
  double validation_seconds_ = 0;       // of the last
  std::optional<double> validation_{};  // of the last validation
  std::int64_t validated_at_ = -1;      // the step of validation_
  std::int64_t resumed_at_ = 0;         // steps done by earlier processes
  std::int64_t step_ = 0;               // steps done
  std::int64_t skipped_in_row_ = 0;     // steps whose update was skipped
  double trained_seconds_ = 0;          // of the steps after the first
  double exposed_seconds_ = 0;
  double submit_seconds_ = 0;   // host time to submit the step's forward and backward passes
  ExposedUnits exposed_units_;  // of all steps
  CommunicationTime communication_time_;
  double communication_seconds_ = 0;  // of the step's collectives
  double tier_seconds_ = 0;           // for which steps, and the run behind them, waited for tiers
  double tier_end_seconds_ = 0;       // of those: behind the last step
  Listening listening_;
};

}  // namespace zero
