// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpointer.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "engine/engine.h"
#include "files/file_system.h"
#include "launch/data/batches.h"
#include "launch/process/configuration_error.h"
#include "launch/process/disk_room.h"
#include "launch/process/versions.h"
#include "launch/telemetry/output.h"
#include "launch/telemetry/run_log.h"
#include "launch/train/loss_scaling.h"
#include "launch/train/training_state.h"

namespace zero {
namespace {

using Json = nlohmann::ordered_json;

Signals::Time now() { return std::chrono::steady_clock::now(); }

std::optional<double> finite(double loss) {
  return std::isfinite(loss) ? std::optional(loss) : std::nullopt;
}

/// Of states of all ranks, in fp32, as files hold them.
std::int64_t file_bytes(Engine& engine, std::initializer_list<StateKind> kinds) {
  std::int64_t bytes = 0;
  for (const StateKind kind : kinds) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      bytes += std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                               static_cast<std::int64_t>(sizeof(float)), std::multiplies<>());
    }
  }
  return bytes;
}

}  // namespace

RunCheckpoints::RunCheckpoints(const RunCheckpointParts& parts)
    : config_(parts.config),
      options_(parts.config.checkpoints),
      order_(parts.batches.order()),
      training_state_(parts.training_state),
      console_(parts.console),
      log_(parts.log),
      signals_(parts.signals),
      progress_(parts.progress),
      saving_(parts.saving),
      disk_(parts.disk),
      identity_(identity_of(parts.config.values, parts.batches.train_fingerprints())),
      requests_({.signals = parts.signals,
                 .first_rank = parts.training_state.engine().communicator().rank() == 0,
                 .started = parts.started,
                 .save_seconds = parts.config.checkpoints.every_seconds,
                 .stop_seconds = parts.config.checkpoints.stop_after_seconds}),
      values_{.log = {.run = mark_of(identity_, parts.config.run.init)}} {}

std::int64_t RunCheckpoints::resume() {
  resumed_ = load();
  if (progress_ != nullptr) progress_->searched = true;
  if (!options_.folder.empty() && options_.resume != "auto") check_nothing_ahead(resumed_);
  // Of a checkpoint that is named, another run may be the owner.
  const std::int64_t kept = resumed_ && options_.resume != "auto" ? resumed_->step : -1;
  const auto lengths = keys_of_length(config_.values);
  training_state_.save_rules().removes = [=, mine = identity_](auto step, const Json& extra) {
    const auto found = extra.find("configuration");
    return step > kept && found != extra.end() && found->is_object() &&
           same_identity(*found, mine, lengths);
  };
  check_room();
  return resumed_ ? resumed_->step : 0;
}

std::optional<Resumed> RunCheckpoints::load() {
  if (options_.resume == "never") return std::nullopt;
  Checkpointer& checkpointer = *training_state_.checkpointer();
  bool refuses = false;
  const auto accepts = [&](const Json& extra) {
    refuses = true;
    accept(extra);
    refuses = false;
  };
  std::optional<Resumed> resumed;
  try {
    resumed = checkpointer.load(options_.resume, accepts);
  } catch (const AgreedError& error) {
    if (refuses) throw ConfigurationError(error.what());  // of another run, and the newest
    throw;
  }
  for (const std::string& reason : checkpointer.passed_over()) {
    console_.line("warning: passed over a checkpoint: " + reason);
  }
  if (!resumed) return std::nullopt;
  if (values_.log.step != resumed->step) {
    throw AgreedError(fmt::format(
        "{}: its index is of step {}, and the trainer's values in it are of step {}, expected the "
        "same; the file was changed, or another program wrote it",
        resumed->folder, resumed->step, values_.log.step));
  }
  if (forks(*resumed)) {
    const std::string left = fmt::format("{} at step {}", values_.log.run, resumed->step);
    values_.log = {.run = mark_of(identity_, left), .step = resumed->step};
  }
  order_.from_step = resumed->step;
  order_.from = consumed_at(values_.position, order_, config_.data.sequence_length);
  saved_step_ = resumed->step;
  if (progress_ != nullptr) progress_->saved(saved_step_, resumed->folder);
  say_resumed(*resumed);
  return resumed;
}

/// Whether the checkpoint is of another folder than this run's: the run there may go on too.
bool RunCheckpoints::forks(const Resumed& resumed) const {
  return options_.folder.empty() || !files::same_place(resumed.folder + "/..", options_.folder);
}

/// Every rank calls this alike.
void RunCheckpoints::accept(const Json& extra) {
  RunValues values = RunValues::read(extra);
  std::vector<std::string> changes = keys_of_length(config_.values);
  changes.insert(changes.end(), options_.resume_changes.begin(), options_.resume_changes.end());
  changes_ = changed_identity(values.identity, identity_, changes);
  ZERO_CHECK(values.log.step <= config_.run.steps,
             "the checkpoint is of step {}, and run.steps is {}: raise run.steps, or start afresh "
             "with another run.checkpoint.folder",
             values.log.step, config_.run.steps);
  values_ = std::move(values);
  // The data that the user has changed are not held to the checkpoint's.
  if (std::ranges::count(options_.resume_changes, "data.train") > 0) values_.digests.clear();
  // The scale of another rule, which the user has asked for, begins as the rule says.
  const bool scale_changes = std::ranges::any_of(
      changes_, [](const IdentityChange& change) { return change.key.starts_with("fp16."); });
  if (scale_changes) values_.loss_scaler.reset();
  LossScaling(config_).restore(values_.loss_scaler);  // throws if its rule has no such state
}

void RunCheckpoints::say_resumed(const Resumed& resumed) {
  console_.line(fmt::format("resumed from {}: {} of {} steps are done", resumed.folder,
                            resumed.step, config_.run.steps));
  const std::vector<std::string> follow = keys_of_length(config_.values);
  for (const auto& [key, text] : changes_) {
    const bool follows = std::ranges::count(follow, key) > 0;
    console_.line(
        follows ? "learning rates from here on are of a schedule for the new run.steps: " + text
                : "run.resume_changes: " + text);
  }
  say_position();
  const std::string kernels = kernels_text(config_.run.device);
  if (values_.kernels != kernels) {
    console_.line(
        fmt::format("the checkpoint's run computed with {}, this one computes with {}: "
                    "the same run, with another rounding from here on",
                    Json(values_.kernels).dump(), Json(kernels).dump()));
  }
  if (values_.micro_batch != config_.batch.micro) {
    console_.line(
        fmt::format("the steps from here on round differently: micro-batch {}, was {}; set "
                    "train_micro_batch_size_per_gpu to {} to keep the bits",
                    config_.batch.micro, values_.micro_batch, values_.micro_batch));
  }
  if (resumed.step == config_.run.steps) {
    console_.line(
        "the run is finished; to train on, raise run.steps; to start afresh, remove the folder or "
        "give another run.checkpoint.folder");
  }
}

/// Said only if the next step does not read what it would have read in the checkpoint's run.
void RunCheckpoints::say_position() const {
  const auto moves = [](const IdentityChange& change) {
    return change.key.starts_with("data.") || change.key == "run.seed" ||
           change.key == "train_batch_size";
  };
  if (std::ranges::none_of(changes_, moves) || values_.log.step == config_.run.steps) return;
  console_.line(going_on_text(values_.position, order_, order_.from, config_.batch.train));
}

/// A later start with "auto" takes the newest checkpoint: it must be of this run.
void RunCheckpoints::check_nothing_ahead(const std::optional<Resumed>& resumed) const {
  Engine& engine = training_state_.engine();
  agree(engine.communicator(), engine.device(), "run.checkpoint.folder", [&] {
    if (engine.communicator().rank() != 0) return;
    const std::int64_t done = resumed ? resumed->step : -1;
    for (const FoundCheckpoint& found : find_checkpoints(files::disk(), options_.folder)) {
      ZERO_CHECK(!(found.complete() || found.unreadable) || found.name.step <= done,
                 "run.resume is \"{}\", but run.checkpoint.folder holds {}, from which a later "
                 "start would go on; give another folder, remove the checkpoint, or set "
                 "run.resume to \"auto\" to go on from it",
                 options_.resume, found.path);
    }
  });
}

/// The first save would fail, perhaps hours later, and the last one after all steps. Each save asks
/// again.
void RunCheckpoints::check_room() const {
  Engine& engine = training_state_.engine();
  std::vector<WantedRoom> wanted;
  const bool saves = !options_.folder.empty() && saved_step_ != config_.run.steps;
  if (saves) {
    wanted.push_back(
        {.key = "run.checkpoint.folder",
         .folder = options_.folder,
         .what = "the files of a checkpoint",
         .bytes =
             file_bytes(engine, {StateKind::parameter, StateKind::moment0, StateKind::moment1}),
         .advice = ", give another folder, or set run.checkpoint.required to false to train on "
                   "without",
         .freed = leftover_bytes(disk_, options_.folder)});
  }
  const std::string& weights = config_.run.save_weights;
  const bool last = saved_step_ != config_.run.steps && !weights.empty();
  if (last) {
    wanted.push_back({.key = "run.save_weights",
                      .folder = std::filesystem::absolute(weights).parent_path().string(),
                      .what = "the weights",
                      .bytes = file_bytes(engine, {StateKind::parameter}),
                      .advice = ", or give another path"});
  }
  agree(engine.communicator(), engine.device(), "room on the disk", [&] {
    if (engine.communicator().rank() != 0) return;
    std::span<const WantedRoom> needed = wanted;
    if (saves && !options_.required) {
      const std::string warning = missing_room(disk_, needed.first(1));
      if (!warning.empty()) console_.line("warning: " + warning);
      if (!warning.empty()) needed = needed.subspan(1);
    }
    const std::string missing = missing_room(disk_, needed);
    ZERO_CHECK(missing.empty(), "{}", missing);
  });
}

void RunCheckpoints::prepare_log() {
  Engine& engine = training_state_.engine();
  agree(engine.communicator(), engine.device(), "run.log",
        [&] { resumed_ && !forks(*resumed_) ? log_.go_on(values_.log) : log_.start_over(); });
  if (resumed_) {
    log_.write({{"resumed_after_step", resumed_->step},
                {"checkpoint", resumed_->folder},
                {"run", values_.log.run}});
  }
  const std::string restart = restart_text(process_environment(), options_.folder);
  if (restart.empty()) return;
  console_.line(restart);
  log_.write({{"restart", restart}, {"run", values_.log.run}});
}

void RunCheckpoints::listen() {
  if (signals_ == nullptr) return;
  const std::string line = options_.folder.empty() ? signals_->refuse() : signals_->listen();
  if (!line.empty()) console_.line(line);
}

std::int64_t RunCheckpoints::vote() {
  if (options_.folder.empty()) return 0;
  if (log_.failed()) requests_.end();
  return requests_.vote(now());
}

Decision RunCheckpoints::after_step(const StepReport& report, const Kept& kept) {
  values_.tokens += config_.tokens_per_step();
  if (report.step == 1) values_.log.first_loss = finite(report.loss);
  values_.skipped_in_row = kept.skipped_in_row;
  values_.loss_scaler = kept.loss_scaler;
  values_.digests = kept.digests;
  if (options_.folder.empty()) return {};
  tell_reports();
  const Decision decision = requests_.decide(report.votes, now());
  const bool last = decision.ends() || report.step == config_.run.steps;
  due_ = due_ || decision.save || last ||
         (options_.every_steps > 0 && report.step % options_.every_steps == 0);
  // A state whose gradients are not finite has perhaps diverged, and replaces no good one. What
  // the run ends with is all that is left of the steps since the last save: saved beside them.
  if (due_ && (!report.nonfinite || last)) save(report);
  return decision;
}

void RunCheckpoints::give_up(const std::string& why) {
  if (training_state_.checkpointer() == nullptr) return;
  training_state_.checkpointer()->give_up(why);
  while (const auto report = training_state_.checkpointer()->report()) {
    if (!report->error.empty()) console_.line("warning: " + report->error);
  }
}

void RunCheckpoints::save(const StepReport& report) {
  due_ = false;
  if (saving_) saving_();
  requests_.saving(now());
  if (report.nonfinite) {
    skipped_save_ = report.step;
    training_state_.checkpointer()->wait();  // a save in flight may remove
    training_state_.save_rules().removes = [](std::int64_t, const Json&) { return false; };
  }
  // The log of the steps must not be behind the checkpoint.
  training_state_.checkpointer()->save(extra(report), [log = log_.file()] {
    if (log != nullptr) log->sync();
  });
}

Json RunCheckpoints::extra(const StepReport& report) {
  values_.log.step = report.step;
  values_.log.loss = finite(report.loss);
  const std::int64_t length = config_.data.sequence_length;
  values_.position = position_behind(order_, length, order_.consumed(report.step));
  values_.identity = identity_;
  values_.micro_batch = config_.batch.micro;
  values_.version = version();
  values_.kernels = kernels_text(config_.run.device);
  return values_.json();
}

void RunCheckpoints::tell_reports() {
  while (const auto report = training_state_.checkpointer()->report()) tell(*report);
}

void RunCheckpoints::tell(const SaveReport& report) {
  if (!report.error.empty()) {
    if (options_.required && report.step != skipped_save_) {
      throw AgreedError(report.error + "; " + newest_text() +
                        ". Mend the cause, or set run.checkpoint.required to false to train on "
                        "without");
    }
    console_.line("warning: " + report.error);
    log_.write({{"not_saved_step", report.step}, {"error", report.error}});
    return;
  }
  if (std::exchange(first_save_, false) && console_.mode() != Console::Mode::silent) {
    console_.line(fmt::format("checkpoints go to {} through {}", options_.folder,
                              training_state_.checkpointer()->io_description()));
  }
  saved_step_ = report.step;
  if (progress_ != nullptr) {
    progress_->saved(saved_step_, checkpoint_path(options_.folder, {.step = saved_step_}));
  }
  if (!report.notes.empty()) console_.line("note: " + report.notes);
  console_.line(fmt::format("saved step {} ({} in {:.1f} s, {:.2f} s exposed)", report.step,
                            decimal_bytes(report.bytes), report.seconds, report.exposed_seconds));
  log_.write({{"saved_step", report.step},
              {"bytes", report.bytes},
              {"seconds", report.seconds},
              {"exposed_seconds", report.exposed_seconds}});
}

int RunCheckpoints::finish() {
  if (options_.folder.empty()) return 0;
  training_state_.checkpointer()->wait();
  tell_reports();
  // Ranks hear a signal at times of their own; one that comes later ends the process.
  std::int64_t signal = signals_ == nullptr ? 0 : signals_->stop_listening();
  Engine& engine = training_state_.engine();
  host_all_reduce(engine.communicator(), engine.device(),
                  View::of(std::span<std::int64_t>(&signal, 1)), ReduceOp::max, {"signals", {}});
  return static_cast<int>(signal);
}

std::string RunCheckpoints::next_text() const {
  return newest_text() + (saved_step_ < 0 ? ": started again, the run begins anew"
                                          : ": started again, the run goes on there");
}

std::string RunCheckpoints::missing_text() const {
  if (options_.folder.empty() || saved_step_ == config_.run.steps) return "";
  return fmt::format("warning: no checkpoint of the last step, {}, exists; {}", config_.run.steps,
                     newest_text());
}

std::string RunCheckpoints::newest_text() const {
  return saved_step_ < 0 ? "there is no checkpoint yet"
                         : fmt::format("the newest checkpoint is of step {}", saved_step_);
}

}  // namespace zero
