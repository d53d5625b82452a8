// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "architecture/family.h"
#include "base/host.h"
#include "base/seconds_since.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/weights.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "engine/engine.h"
#include "launch/data/batches.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/output.h"
#include "launch/telemetry/profile.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/run_device.h"
#include "launch/train/run_lock.h"
#include "launch/train/tier_lines.h"
#include "model/model.h"

namespace zero {
namespace {

/// This rank's plan. Says on what the start of a run spends its time: a minute and more for a large
/// model.
MemoryUse planned_memory(const TrainerParts& parts) {
  Communicator& ranks = parts.mesh.world();
  const auto known = parts.plans.find(ranks.rank());
  MemoryUse planned = known != parts.plans.end()
                          ? known->second
                          : plan_memory(parts.config, ranks.rank(), ranks.size(), ranks.backend(),
                                        parts.device.memory());
  const TierNeeds needs{.memory_bytes = planned.on_host(), .file_bytes = sum_of(planned.file)};
  for (const std::string& warning :
       agree_on_tier_room(tier_place(parts.config), needs, ranks, parts.device, parts.disk)) {
    parts.console.line("warning: " + warning);
  }
  parts.console.line(fmt::format("allocating {} on a rank, and initialising the model states",
                                 size_text(sum_of(planned.ledger))));
  return planned;
}

/// All that hear of the model's units.
UnitListeners unit_listeners(const TrainerParts& parts, RunPhases& phases, RunMemory& memory) {
  UnitListeners all;
  if (parts.instruments != nullptr) all.add(*parts.instruments);
  if (UnitListener* const traces = memory.listener()) all.add(*traces);
  if (!parts.phase_listeners.empty()) all.add(phases);
  for (UnitListener* const each : parts.unit_listeners) all.add(*each);
  return all;
}

/// Why a save in flight is not committed.
std::string given_up(std::int64_t step) {
  return fmt::format("step {} was not finite, and the states before it may be bad already", step);
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts)
    : config_(parts.config),
      batches_(parts.batches),
      mesh_(parts.mesh),
      communicator_(parts.mesh.world()),
      device_(parts.device),
      console_(parts.console),
      cores_are_shared_(parts.cores_are_shared),
      instruments_(parts.instruments),
      progress_(parts.progress),
      phases_(parts.phase_listeners),
      planned_(planned_memory(parts)),
      losses_(static_cast<std::size_t>(config_.batch.accumulation)),
      memory_({.config = config_,
               .ranks = communicator_,
               .device = device_,
               .console = console_,
               .trace = parts.memory_trace,
               .instruments = instruments_}),
      unit_listeners_(unit_listeners(parts, phases_, memory_)),
      training_state_(config_, mesh_, device_, unit_listeners_.empty() ? nullptr : &unit_listeners_,
                      work_progress(console_, "initialising the model states", "parameters")),
      log_(config_, parts.log, console_),
      checkpoints_({.config = config_,
                    .batches = batches_,
                    .training_state = training_state_,
                    .console = console_,
                    .log = log_,
                    .signals = parts.signals,
                    .started = parts.started,
                    .progress = progress_,
                    .saving = [this] { phases_.at(step_, "save"); },
                    .disk = parts.disk}),
      data_check_(batches_, communicator_, device_, console_, parts.signals),
      loss_scaling_(config_),
      exposed_units_(training_state_.engine().unit_names(), training_state_.engine().schedule()),
      listening_(communicator_, communication_time_) {
  memory_.know_units(training_state_.engine().unit_names());
  if (parts.folder_lock == nullptr) return;
  training_state_.save_rules().check = [lock = parts.folder_lock] { lock->check(); };
}

int Trainer::run() {
  console_.line(
      fmt::format("{} parameters, stage {}, {} rank(s) x {} thread(s); a step is {} sequences of "
                  "{} tokens ({} per rank x {} micro-batch(es))",
                  training_state_.engine().parameter_count(), config_.engine.stage,
                  communicator_.size(), config_.run.threads, config_.batch.train,
                  config_.data.sequence_length, config_.batch.micro, config_.batch.accumulation));
  if (communicator_.size() > 1) {
    console_.line(fmt::format("ranks talk through {}", communicator_.description()));
  }
  const std::string note = training_state_.model().note();
  if (!note.empty()) console_.line(note);
  show_mesh();
  const std::string limit =
      live_limit_line(training_state_.engine().schedule(), config_.engine.limits);
  if (!limit.empty()) console_.line(limit);
  for (const std::string& line :
       tier_share_lines(config_, planned_, training_state_.state_transfers())) {
    console_.line(line);
  }
  memory_.at(0, "load");
  phases_.at(-1, "load");
  step_ = resumed_at_ = checkpoints_.resume();
  skipped_in_row_ = checkpoints_.kept().skipped_in_row;
  loss_scaling_.restore(checkpoints_.kept().loss_scaler);
  data_check_.expect(checkpoints_.kept().digests);
  if (resumed_at_ == 0) {
    load();
  } else if (config_.values.given("run.init") && !config_.run.init.empty()) {
    console_.line(fmt::format("run.init, {}, is not used: the weights are the checkpoint's",
                              config_.run.init));
  }
  checkpoints_.prepare_log();
  if (instruments_ != nullptr) instruments_->begin_after(resumed_at_);
  memory_.at(0, "between steps");
  phases_.at(resumed_at_ == 0 ? -1 : resumed_at_, "between steps");
  const Decision decision = train();
  if (instruments_ != nullptr) {
    device_.communication().synchronize();
    instruments_->stop();
  }
  console_.end_progress();
  // From here on ranks wait for disks, and for neither a trace nor a reader of output.
  begin_phase(step_, "end");
  settle_tiers();
  Decision ending{.signal = checkpoints_.finish()};
  if (decision.signal != 0) ending.signal = decision.signal;
  ending.time_is_up = decision.time_is_up && step_ < config_.run.steps;
  if (ending.ends()) return end_early(ending);
  finish();
  return log_.failed() ? 1 : 0;
}

void Trainer::begin_phase(std::int64_t step, std::string_view name) {
  memory_.at(step, name);
  phases_.at(step, name);
}

/// Returns what has ended the run before its last step, or nothing that ends it.
Decision Trainer::train() {
  checkpoints_.listen();
  Decision decision;
  while (step_ < config_.run.steps && !decision.ends()) decision = train_step(++step_);
  return decision;
}

void Trainer::show_mesh() {
  const MeshTable table = mesh_table(
      mesh_.shape(), all_gather_texts(communicator_, device_, host_name(), "hosts of the mesh"));
  if (!table.text.empty()) console_.line(table.text);
  for (const std::string& warning : table.warnings) console_.line("warning: " + warning);
}

void Trainer::load() {
  if (config_.run.init.empty()) return;
  agree(communicator_, device_, "run.init", [&] {
    load_weights(training_state_.engine(), config_.run.init, file_names(config_.model));
  });
  console_.line(fmt::format("weights from {}", config_.run.init));
}

Decision Trainer::train_step(std::int64_t step) {
  if (instruments_ != nullptr) instruments_->begin_step(step, device_.compute());
  const auto start = std::chrono::steady_clock::now();
  const double scale = loss_scaling_.scale();
  memory_.at(step, "forward");
  train_micro_batches(step, scale);
  begin_phase(step, "update");
  const StepOptions options{.learning_rate = config_.learning_rates.at(
                                loss_scaling_.schedule_step(step, training_state_.engine())),
                            .loss_scale = scale,
                            .losses = losses_,
                            .vote = checkpoints_.vote() + data_check_.vote()};
  const StepReport report =
      with_agreed_failure([&] { return training_state_.engine().step(options); });
  handle_nonfinite(report);
  tell_findings();
  const double seconds = seconds_since(start);
  communication_seconds_ = communication_time_.take();
  tier_seconds_ += report.tier_seconds;
  if (instruments_ != nullptr) instruments_->end_step(step);
  if (config_.run.validation_every > 0 && step % config_.run.validation_every == 0) validate();
  begin_phase(step, "between steps");
  const std::optional<std::string> grown = memory_.after_step(step);
  log_step(report, options, seconds);
  if (grown) log_.write({{"memory_growth", *grown}, {"after_step", step}});
  if (progress_ != nullptr && communicator_.rank() == 0) progress_->steps_done = report.step;
  show_progress(report, seconds);
  exposed_units_.add(training_state_.engine().exposed_by_use(), report.exposed_seconds,
                     communication_seconds_);
  data_check_.after_step(
      report.votes, step == config_.run.steps ? DataCheck::Step::last : DataCheck::Step::middle);
  const Decision decision = checkpoints_.after_step(
      report, {skipped_in_row_, loss_scaling_.state(), data_check_.agreed()});
  if (phases_.name() == "save") phases_.at(step, "between steps");
  return check_memory(decision);
}

void Trainer::train_micro_batches(std::int64_t step, double scale) {
  const auto tokens = static_cast<double>(config_.tokens_per_step());
  submit_seconds_ = 0;
  for (std::int64_t j = 0; j < config_.batch.accumulation; ++j) {
    const std::int64_t micro_batch = j * mesh_.data().size() + mesh_.data().rank();
    // The ids of the micro-batch before the last are overwritten: its work must be complete.
    Event& trained = trained_[static_cast<std::size_t>(j) % trained_.size()];
    if (!trained.complete()) trained.synchronize();
    batches_.train(checkpoints_.order().sequences_of(step - 1, micro_batch),
                   training_state_.inputs(j), training_state_.targets(j));
    phases_.at(step, "forward");
    const auto submitting = std::chrono::steady_clock::now();
    training_state_.model().train(training_state_.inputs(j), training_state_.targets(j),
                                  static_cast<float>(scale / tokens), training_state_.loss());
    submit_seconds_ += seconds_since(submitting);
    // Copied out because the next micro-batch overwrites the loss.
    device_.compute().submit_host("loss", [this, j, tokens] {
      losses_[static_cast<std::size_t>(j)] = training_state_.loss().as<const double>()[0] / tokens;
    });
    trained = device_.compute().record();
  }
}

/// A run that saves ends behind its next step, whose states it keeps; another ends here.
Decision Trainer::check_memory(Decision decision) {
  if (!memory_.stops()) return decision;
  if (config_.checkpoints.folder.empty()) {
    decision.time_is_up = true;
  } else {
    checkpoints_.end();
  }
  return decision;
}

void Trainer::handle_nonfinite(const StepReport& report) {
  try {
    const std::string overflow = loss_scaling_.after_step(report);
    if (!overflow.empty()) return console_.line(overflow);
  } catch (const AgreedError&) {
    save_nonfinite(report);
    checkpoints_.give_up(given_up(report.step));
    throw;
  }
  if (!report.nonfinite && std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) {
    skipped_in_row_ = 0;
    const std::string vanished = loss_scaling_.vanished(report);
    if (!vanished.empty()) console_.line(vanished);
    return;
  }
  save_nonfinite(report);
  const std::string found = fmt::format(
      "step {}: {} is NaN or infinite, first on rank {} (loss {}); the update was skipped",
      report.step, report.nonfinite ? nonfinite_value(report) : "the gradient norm",
      std::max(0, report.nonfinite_rank), report.loss);
  ++skipped_in_row_;
  const bool skips = config_.run.nonfinite == TrainConfig::Nonfinite::skip && report.nonfinite;
  if (skips && skipped_in_row_ < config_.run.nonfinite_limit) {
    return console_.line(fmt::format("{}, {} in a row", found, skipped_in_row_));
  }
  checkpoints_.give_up(given_up(report.step));
  throw AgreedError(fmt::format(
      "{}{}. {} optimizer.params.lr, lengthen the warm-up, or check the weights of run.init", found,
      skips ? fmt::format(", {} in a row, run.nonfinite_limit", skipped_in_row_) : "",
      config_.loss_scale_rule ? "Lower fp16.loss_scale, or set it to 0 (dynamic), lower"
                              : "Lower"));
}

void Trainer::log_step(const StepReport& report, const StepOptions& options, double seconds) {
  if (!log_.open()) return;
  nlohmann::ordered_json line{
      {"step", report.step},
      {"loss", report.loss},
      {"grad_norm", report.gradient_norm},
      {"learning_rate", options.learning_rate},
      {"tokens", config_.tokens_per_step()},
      {"step_seconds", seconds},
      {"tokens_per_second", static_cast<double>(config_.tokens_per_step()) / seconds},
      {"exposed_communication_seconds", report.exposed_seconds},
      {"communication_seconds", communication_seconds_},
      {"communication", traffic_json(report.traffic)}};
  if (of_gpu()) line["submit_seconds"] = submit_seconds_;
  if (has_tiers()) line["tier_seconds"] = report.tier_seconds;
  if (mesh_.size(Axis::replicate) > 1 || mesh_.size(Axis::tensor) > 1) {
    line["communication_by_axis"] = axes_json(report.axes, mesh_.shape());
  }
  if (validated_at_ == report.step) line["validation_loss"] = *validation_;
  if (loss_scaling_.state()) line["loss_scale"] = options.loss_scale;
  if (report.nonfinite) line["skipped"] = *report.nonfinite;
  if (config_.mesh.tensor > 1) line["mesh_tensor"] = config_.mesh.tensor;
  line["memory"] = memory_.json();
  if (report.step == 1) line["run"] = checkpoints_.run_mark();
  log_.write(line);
}

void Trainer::show_progress(const StepReport& report, double seconds) {
  // Excludes the first step, which also warms caches and generates the products' code.
  const std::int64_t here = report.step - resumed_at_;
  const std::int64_t counted = std::max<std::int64_t>(1, here - 1);
  if (here <= 2) trained_seconds_ = exposed_seconds_ = 0;
  trained_seconds_ += seconds;
  exposed_seconds_ += report.exposed_seconds;
  const double mean = trained_seconds_ / static_cast<double>(counted);
  const std::int64_t every = config_.run.validation_every;
  const std::int64_t validations = every > 0 ? config_.run.steps / every - report.step / every : 0;
  const double left = mean * static_cast<double>(config_.run.steps - report.step) +
                      validation_seconds_ * static_cast<double>(validations);
  std::string text = fmt::format(
      "step {}/{}  loss {:.4f}  {} tokens/s  {} left", report.step, config_.run.steps, report.loss,
      count_text(static_cast<double>(config_.tokens_per_step()) / seconds), duration_text(left));
  if (communicator_.size() > 1) {  // one rank's copies between its own buffers are no communication
    text += fmt::format("  exposed communication{} {:.1f} %",
                        cores_are_shared_ ? " and waits for a core" : "",
                        100.0 * exposed_seconds_ / std::max(trained_seconds_, 1e-9));
  }
  if (report.tier_seconds > 0) {
    text += fmt::format("  waited for {} {:.1f} %", of_gpu() ? "tiers" : "the file",
                        100.0 * report.tier_seconds / seconds);
  }
  console_.refresh(text);
  const bool due = here == 1 || report.step == config_.run.steps ||
                   report.step % config_.run.steps_per_print == 0;
  if (console_.mode() == Console::Mode::lines && due) console_.line(text);
}

}  // namespace zero
