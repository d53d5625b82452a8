// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "collectives/mesh_shape.h"
#include "collectives/nccl/options.h"
#include "collectives/wait_limits.h"
#include "engine/engine_options.h"
#include "launch/config/configuration.h"
#include "launch/config/refusals.h"
#include "launch/faults/fault_options.h"
#include "launch/process/environment.h"
#include "model/recompute.h"
#include "model/tensor_options.h"
#include "optim/learning_rate.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer_config.h"

namespace zero {

enum class DeviceKind : std::uint8_t;

/// The batch sizes that a configuration gives; a missing one is inferred.
struct BatchRequest {
  std::optional<std::int64_t> train{};         ///< train_batch_size
  std::optional<std::int64_t> micro{};         ///< train_micro_batch_size_per_gpu
  std::optional<std::int64_t> accumulation{};  ///< gradient_accumulation_steps
};

/// train = micro x accumulation x world.
struct Batch {
  std::int64_t train = 0;
  std::int64_t micro = 0;
  std::int64_t accumulation = 0;
  friend bool operator==(const Batch&, const Batch&) = default;
};

/// Infers as DeepSpeed does: any two give the third; train alone implies one micro-batch; micro
/// alone implies one micro-batch on every rank. Throws zero::Error with the numbers if they do not
/// fit.
Batch infer_batch(const BatchRequest& request, int world);

/// A configuration in the trainer's own types, for one world.
struct TrainConfig {
  struct Data {
    std::vector<std::string> train;
    std::vector<std::string> validation;
    std::int64_t sequence_length = 0;
    bool shuffle = false;
    std::string tokenizer;  ///< as make_tokenizer takes it, or empty: token ids are printed
  };
  /// The sections run.checkpoint and run.resume, and the time at which a run ends by itself.
  struct Checkpoints {
    std::string folder;            ///< of all checkpoints; empty: nothing is saved
    std::int64_t every_steps = 0;  ///< 0: none for their number
    double every_seconds = 0;      ///< 0: none for the time
    int keep_last = 0;             ///< 0: all
    std::int64_t keep_every = 0;
    std::int64_t file_bytes = 0;
    bool required = true;                     ///< a failed save ends the run
    std::string resume = "never";             ///< "auto", "never", or a path
    std::vector<std::string> resume_changes;  ///< keys that may differ from the checkpoint's
    double stop_after_seconds = 0;            ///< of the process; 0: never
    files::FileSystem* disk = nullptr;        ///< that saves go to; null: files::disk()
    /// Whether states are saved or loaded.
    bool used() const { return !folder.empty() || resume != "never"; }
  };
  /// The answer to a gradient or loss that is NaN or infinite; its update is always skipped.
  enum class Nonfinite : std::uint8_t { stop, skip };
  /// The answer to more growth of memory than run.memory_growth.
  enum class Growth : std::uint8_t { warn, stop };
  struct Run {
    std::int64_t steps = 0;
    std::uint64_t seed = 0;
    DeviceKind device{};                  ///< DeviceKind::cpu
    nccl::Sums sums = nccl::Sums::exact;  ///< on GPUs; sums on the CPU are always exact
    int threads = 1;
    WaitLimits waits;  ///< the callback is not set
    bool watchdog = true;
    bool watchdog_hosts = true;  ///< see each other
    double hang_timeout = 0;     ///< seconds, as WatchdogOptions::hang_seconds
    std::string log;
    bool profile = false;
    std::string trace;  ///< empty: none
    std::int64_t trace_from = 2;
    std::int64_t trace_steps = 2;
    std::int64_t trace_events = 100000;
    std::string flight_folder;       ///< empty: as flight_folder() says; "none": in memory alone
    std::int64_t memory_growth = 0;  ///< bytes; 0: any
    Growth growth_action = Growth::warn;
    std::string memory_trace;  ///< empty: none
    std::int64_t memory_trace_bytes = 0;
    std::string init;          ///< a file or a Hugging Face folder; empty: none
    std::string save_weights;  ///< a file, or a folder if it ends with a slash; empty: none
    std::int64_t validation_every = 0;
    std::int64_t validation_sequences = 0;  ///< 0: all
    std::int64_t steps_per_print = 1;
    Nonfinite nonfinite = Nonfinite::stop;
    std::int64_t nonfinite_limit = 1;  ///< skipped steps in a row that end the run
    FaultOptions faults{};             ///< that the run is to meet; none but in tests
    bool check_collectives = false;
    std::int64_t check_compute_every = 0;  ///< steps; 0: never
  };

  /// The section activation_checkpointing, and the memory that a rank may use.
  struct Recompute {
    RecomputePlan plan{};           ///< empty while `automatic` (choose_recompute())
    bool automatic = false;         ///< to be planned so that the run fits memory_limit
    std::int64_t memory_limit = 0;  ///< bytes of a rank; 0: none
  };

  DecoderShape model;
  Data data;
  Run run;
  Checkpoints checkpoints;
  Batch batch;
  EngineOptions engine;
  LearningRates learning_rates;
  std::optional<LossScaleRule> loss_scale_rule;  ///< of fp16 compute
  int world = 1;
  MeshShape mesh;        ///< resolved for the world
  TensorOptions tensor;  ///< of the mesh's tensor axis
  Recompute recompute;
  Configuration values;               ///< with every inferred value filled in
  std::vector<std::string> warnings;  ///< what fits together and is hardly meant

  /// Ranks that compute different micro-batches.
  int data_ranks() const { return mesh.data_ranks(); }
  /// Tokens of one optimizer step.
  std::int64_t tokens_per_step() const { return batch.train * data.sequence_length; }
};

/// The model of the section "model": by name, by sizes, or by a Hugging Face folder. Fills in
/// missing keys with defaults. Throws zero::Error naming the key that is missing, out of range, or
/// of another model family.
DecoderShape make_model_shape(Configuration& values);

/// The shape of the job's mesh: the section `mesh`, or DeepSpeed's keys of the same meaning, with
/// open sizes filled in. Throws zero::Error naming the keys if the sizes do not multiply to the
/// world, or contradict each other.
MeshShape make_mesh_shape(Configuration& values, int world);

/// Throws Refusal if run.elastic is true beside keys with which other ranks would compute other
/// steps, or fit at no other number. Before make_mesh_shape(), which fills them in.
void check_elastic(const Configuration& values);
/// How many of `came` ranks take part in the run: all; with run.elastic the largest power of two
/// that batch and mesh have a place for, or, if they have for none, the largest.
int elastic_ranks(const Configuration& values, int came);

/// The options of the tensor axis: the other keys of the section `mesh`.
TensorOptions make_tensor_options(const Configuration& values);

/// Enables the section fp16 or bf16 if torch_autocast asks for that dtype: master values are fp32
/// either way. Throws Refusal if it names none, or the other section is enabled.
void resolve_autocast(Configuration& values);
/// Refuses fp16 and bf16 together.
void check_compute_dtype(const Configuration& values);
/// The dtype of compute: that of the section fp16 or bf16 that is enabled, else fp32; of two that
/// are, the one that the answer to their refusal leaves.
DType make_compute_dtype(const Configuration& values);
/// Refuses a communication_data_type that sums would not have here.
void check_communication_dtype(const Configuration& values, DType compute);
/// The rule of fp16's loss scale; nothing if the run computes in another dtype. Throws zero::Error
/// naming keys that contradict each other.
std::optional<LossScaleRule> make_loss_scale_rule(const Configuration& values);
LearningRates make_rates(Configuration& values);
/// That the run ends before the learning rate is up, if so; both numbers. For what make_rates() has
/// filled in.
std::string warmup_warning(const Configuration& values);
/// The optimizer, with the format of its moments; nothing if `refusals` gets keys that contradict
/// each other.
std::optional<OptimizerConfig> make_optimizer_config(Configuration& values, Refusals& refusals);
/// What backward computes again for a model of `layers` blocks, and the limit of memory. `refusals`
/// gets what names keys that contradict each other.
TrainConfig::Recompute make_recompute(Configuration& values, std::int64_t layers,
                                      Refusals& refusals);

/// How long ranks wait in collectives. Throws Refusal if the warning would come behind the end.
WaitLimits make_wait_limits(const Configuration& values);
/// run.watchdog, run.watchdog_hosts and run.hang_timeout.
void make_watchdog(const Configuration& values, TrainConfig::Run& run, Refusals& refusals);

/// Whether the value of `key` is what "auto" has selected.
bool chosen_by_auto(const Configuration& values, std::string_view key = "run.device");

/// Where optimizer states and shards of parameters are between uses, and how files of them are read
/// and written. Those whose device is "auto" are in the device's memory (fit_memory() moves them);
/// the folder is then the one that they may go to, if there is one. `refusals` gets what a device
/// of that kind, or the stage, does not offer, and keys that contradict each other.
TierOptions make_tiers(Configuration& values, DeviceKind device, Refusals& refusals);
/// Whether "auto" is to decide a device of offload_optimizer or offload_param (fit_memory()).
bool tiers_are_auto(const Configuration& values);
/// The key that names the folder of those files, or that could.
std::string tier_folder_key(const Configuration& values);

/// The checkpoints of a run. `refusals` gets what names keys that mean nothing without another one.
TrainConfig::Checkpoints make_checkpoints(Configuration& values, Refusals& refusals);

/// What decides which faults a run can meet, beside their keys.
struct FaultSetting {
  int world = 1;
  DeviceKind device{};               ///< DeviceKind::cpu
  bool memory_is_limited = false;    ///< by a control group, of this process
  Environment environment{};         ///< ZERO_ALLOW_FAULTS must be 1 in it
  std::vector<std::string> units{};  ///< the model's, in order; empty: not known
};
/// The faults of run.faults. `refusals` gets what cannot happen as asked.
FaultOptions make_faults(Configuration& values, const FaultSetting& setting, Refusals& refusals);

/// Fills in values that depend on several keys or on the world; `local_world` is the number of
/// ranks on this host (0: all). Throws zero::Error naming the keys and numbers that do not fit
/// together, and `refusals`, what reading has refused; these of the ranks that would take part.
TrainConfig make_train_config(Configuration values, int world, int local_world = 0,
                              Refusals refusals = {});

/// For what runs no save: a save takes memory and time of its own.
TrainConfig without_saves(TrainConfig config);

}  // namespace zero
