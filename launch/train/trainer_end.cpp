// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What a run does behind its last step, and behind one that is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "architecture/family.h"
#include "base/seconds_since.h"
#include "checkpoint/weights.h"
#include "collectives/agreement.h"
#include "engine/engine.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/output.h"
#include "launch/telemetry/profile.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/compute_check.h"
#include "launch/train/nonfinite_report.h"
#include "launch/train/run_device.h"
#include "launch/train/tokenizer_files.h"
#include "launch/train/trainer.h"

namespace zero {

void Trainer::save_nonfinite(const StepReport& report) {
  console_.line(save_nonfinite_step({.config = config_,
                                     .batches = batches_,
                                     .order = checkpoints_.order(),
                                     .mesh = mesh_,
                                     .device = device_,
                                     .engine = training_state_.engine(),
                                     .report = report,
                                     .losses = losses_,
                                     .loss_scale = loss_scaling_.scale()}));
}

void Trainer::tell_findings() {
  ComputeCheck* const check = training_state_.compute_check();
  if (check == nullptr) return;
  const ComputeCheck::Found found = check->take();
  for (const std::string& line : found.lines) {
    if (mesh_.world().rank() == 0)
      print_error("zero_train: warning: {}\n", line);  // for launch/retry.sh too
    log_.write({{"computed_wrongly", line}, {"after_step", step_}});
  }
  if (!found.over) return;
  checkpoints_.give_up(*found.over);
  throw AgreedError(*found.over);
}

void Trainer::settle_tiers() {
  if (!has_tiers()) return;
  const auto start = std::chrono::steady_clock::now();
  device_.transfer().synchronize();
  tier_end_seconds_ = seconds_since(start);
  tier_seconds_ += tier_end_seconds_;
}

int Trainer::end_early(const Decision& decision) {
  const std::string reason = decision.signal == 0        ? (log_.failed()     ? "run.log"
                                                            : memory_.stops() ? "run.memory_growth"
                                                                              : "run.stop_after")
                             : decision.signal == SIGINT ? "SIGINT"
                                                         : "SIGTERM";
  console_.line(fmt::format("ended by {} after step {} of {}; {}", reason, step_, config_.run.steps,
                            checkpoints_.next_text()));
  log_.write({{"ended_by", reason}, {"after_step", step_}});
  write_trace_file();
  if (decision.signal != 0) return 128 + decision.signal;
  return log_.failed() || memory_.stops() ? 1 : 0;
}

void Trainer::save() {
  phases_.at(step_, "save");
  const std::string& path = config_.run.save_weights;
  if (names_folder(path)) {
    save_hf_folder(training_state_.engine(), path, config_.model, weight_folder_files(config_));
  } else {
    save_weights(training_state_.engine(), path, file_names(config_.model));
  }
}

void Trainer::write_trace_file() {
  if (instruments_ == nullptr || config_.run.trace.empty()) return;
  const double error = write_trace(communicator_, device_, instruments_->trace(), config_.run.trace,
                                   instruments_->origin());
  console_.end_progress();
  const std::int64_t first = resumed_at_ + config_.run.trace_from;
  const std::int64_t last = std::min(first + config_.run.trace_steps - 1, step_);
  if (first > last) return console_.line("no step was left to trace: run.trace is empty");
  console_.line(fmt::format(
      "trace of {}: {}; the devices' times are within {:.1f} us of their hosts' clocks",
      first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last),
      config_.run.trace, error * 1e6));
}

nlohmann::ordered_json Trainer::finish_profile() {
  if (instruments_ == nullptr || !config_.run.profile || instruments_->profile().steps() == 0)
    return {};
  nlohmann::ordered_json json;
  agree(communicator_, device_, "run.profile", [&] {
    if (communicator_.rank() != 0) return;
    Profile& profile = instruments_->profile();
    add_update_bytes(profile, training_state_.engine());
    const MachineLimits limits = limits_of(config_, device_);
    console_.line(fmt::format("\n{}", profile.table(limits)));
    const std::string beside = collectives_table(instruments_->collectives(), profile.steps());
    if (!beside.empty()) console_.line(beside);
    json = profile.json(limits);
    json["collectives"] = collectives_json(instruments_->collectives());
  });
  return json;
}

void Trainer::finish() {
  console_.end_progress();
  const std::optional<double> loss = validate();
  begin_phase(step_, "end");
  // Before the hash, whose own memory is no part of training.
  const MemoryReport memory =
      merge_memory(communicator_, device_, planned_, MemoryUse::of(device_));
  // The hash and the weight files come from one replica: the others must be equal.
  if (config_.engine.replica_check_every > 0) {
    with_agreed_failure([&] { training_state_.engine().states().check_replicas(); });
  }
  const std::uint64_t hash = loss_scaling_.hash(training_state_.engine().states().hash(
      work_progress(console_, "hashing the model states", "values")));
  if (!config_.run.save_weights.empty()) {
    agree(communicator_, device_, "run.save_weights", [&] { save(); });
    phases_.at(step_, "end");
    if (progress_ != nullptr) progress_->weights_due = false;
  }
  nlohmann::ordered_json profile = finish_profile();
  if (log_.open()) {
    nlohmann::ordered_json last{
        {"final", true},
        {"state_hash", fmt::format("{:016x}", hash)},
        {"validation_loss", loss ? nlohmann::ordered_json(*loss) : nlohmann::ordered_json()},
        {"memory", memory.json()},
        {"device",
         {{"planned", device_json(memory.planned.device)},
          {"used", device_json(memory.used.device)}}},
        {"file",
         {{"planned", listed_json(memory.planned.file)}, {"used", listed_json(memory.used.file)}}},
        {"plan_exact", memory.exact},
        {"model_state_bytes", memory.model_state_bytes},
        {"parameters", training_state_.engine().parameter_count()},
        {"steps_skipped", training_state_.engine().states().steps_skipped()},
        {"threads", config_.run.threads},
        {"threads_from", config_.values.at("run.threads").source}};
    if (communicator_.size() > 1) last["communication"] = exposed_units_.json();
    if (has_tiers()) {
      last["tiers"] = {{"seconds", tier_seconds_}, {"seconds_behind_last_step", tier_end_seconds_}};
    }
    if (of_gpu()) last["graphs"] = graphs_json(training_state_.engine().captured_graphs(), config_);
    if (!profile.is_null()) last["profile"] = std::move(profile);
    log_.write(last);
  }
  if (of_gpu()) {
    console_.line(graphs_text(training_state_.engine().captured_graphs(), config_));
  }
  const std::string exposed = exposed_units_.summary();
  if (!exposed.empty() && communicator_.size() > 1) console_.line(exposed);
  if (has_tiers()) {
    console_.line(fmt::format("waited {:.1f} s for tiers, of them {:.1f} s behind the last step",
                              tier_seconds_, tier_end_seconds_));
  }
  if (const std::int64_t skipped = training_state_.engine().states().steps_skipped(); skipped > 0) {
    console_.line(fmt::format("the updates of {} of {} steps were skipped", skipped, step_));
  }
  console_.line(fmt::format("\n{}", memory.table()));
  console_.line(fmt::format("memory is {}; state hash {:016x}",
                            memory.exact ? "as planned, to the byte" : "NOT as planned", hash));
  console_.line(fmt::format("log: {}{}", config_.run.log.empty() ? "none" : config_.run.log,
                            config_.run.save_weights.empty()
                                ? ""
                                : fmt::format("   weights: {}", config_.run.save_weights)));
  const std::string missing = checkpoints_.missing_text();
  if (!missing.empty()) console_.line(missing);
  write_trace_file();  // the last of what can fail
}

}  // namespace zero
