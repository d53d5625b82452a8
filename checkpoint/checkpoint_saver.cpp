// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_saver.h"

#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"

namespace zero {
namespace {

/// A vote of a rank that has failed; one of a rank that has done its part is 1. A sum holds both
/// numbers.
constexpr std::int64_t kFailed = std::int64_t{1} << 32;
constexpr std::string_view kPurpose = "checkpoint";

nlohmann::ordered_json checked(const nlohmann::ordered_json& extra) {
  if (extra.is_null()) return nlohmann::ordered_json::object();
  ZERO_CHECK(extra.is_object(), "save: the extra values are {}, expected a JSON object",
             extra.type_name());
  return extra;
}

}  // namespace

CheckpointSaver::CheckpointSaver(const StateSource& of, const CheckpointOptions& options)
    : engine_(of.engine),
      engine_life_(of.engine.lifetime()),
      folder_(options.folder),
      exceptions_(std::uncaught_exceptions()),
      statuses_(of.engine.mesh().world(), of.engine.device()),
      writer_(of, StateTensors(of.engine.states()),
              lay_out_checkpoint(StateTensors(of.engine.states()).all(), options.names,
                                 {options.file_bytes, options.weight_files}),
              options.states),
      partial_(of, options, statuses_, writer_),
      time_(of.engine.states()) {}

/// Where only this rank fails, the others will not come to wait with it.
CheckpointSaver::~CheckpointSaver() {
  if (engine_life_.expired()) return;
  try {
    if (std::uncaught_exceptions() <= exceptions_) wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failure is lost, as documented
  }
  try {
    detach();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream reads no more
  }
}

/// Another reader that is attached stays.
void CheckpointSaver::detach() {
  if (std::exchange(attached_, false)) engine_.states().attach(nullptr);
}

void CheckpointSaver::replaced() {
  if (std::exchange(attached_, false)) wait();
}

void CheckpointSaver::check_engine() const {
  ZERO_CHECK(!engine_life_.expired(),
             "{}: the engine of these checkpoints was destroyed; it must outlive its Checkpointer",
             folder_);
}

void CheckpointSaver::save(const nlohmann::ordered_json& extra,
                           const std::function<void()>& before_commit) {
  wait();
  ZERO_CHECK(
      engine_.device().has_memory(),
      "{}: save: the device \"{}\" has no memory, so there are no states to save; save those of "
      "an engine on the device of a run",
      folder_, engine_.device().name());
  time_.begin();
  const SaveTime::Exposed exposed(time_);
  const NoTimeout patient(statuses_.world(), "save");
  EngineStates& states = engine_.states();
  now_ = {.step = states.steps_done() + states.steps_skipped(), .bytes = writer_.layout().bytes()};
  PartialCheckpoint::Content content{.step = now_.step,
                                     .steps_skipped = states.steps_skipped(),
                                     .extra = checked(extra),
                                     .before_commit = before_commit};
  states.attach(this);  // throws before anything is made, unless between optimizer steps
  attached_ = true;
  if (const std::string why = partial_.open(std::move(content)); !why.empty()) {
    detach();
    return abandon(why);
  }
  phase_ = Phase::writing;
}

std::int64_t CheckpointSaver::vote() {
  if (phase_ == Phase::writing && writer_.ended()) return writer_.failure().empty() ? 1 : kFailed;
  if (phase_ == Phase::committing && first() && commit_ended_) return 1;
  return 0;
}

void CheckpointSaver::counted(std::int64_t sum) {
  const NoTimeout patient(statuses_.world(), "save");
  if (phase_ == Phase::writing && sum / kFailed + sum % kFailed == statuses_.size()) {
    writer_.close();
    if (sum == statuses_.size()) return begin_commit();
    abandon(statuses_.failure(writer_.failure(), kPurpose));
  } else if (phase_ == Phase::committing && sum > 0) {
    const RankStatus status =
        statuses_.all_gather(first() ? committed_ : RankStatus(), kPurpose)[0];
    finish(status.failure.empty() ? "" : "[rank 0] " + status.failure, status.note);
  }
}

/// All files are durable: rank 0 commits on a thread of its own.
void CheckpointSaver::begin_commit() {
  const std::span<const std::uint32_t> sums = writer_.sum_checksums(statuses_.world());
  phase_ = Phase::committing;
  commit_ended_ = false;
  if (!first()) return;
  side_.add([this, sums] {
    committed_.failure = failure_of([&] { partial_.commit(sums); });
    committed_.note = partial_.notes();
    commit_ended_ = true;
  });
}

/// Ends a save that has failed. Collective.
void CheckpointSaver::abandon(const std::string& why) {
  writer_.close();
  RankStatus mine;
  if (first()) {
    partial_.remove();
    mine.note = partial_.notes();
  }
  // All ranks have closed their files before rank 0 removes them, in exchanges before this.
  finish(why, statuses_.all_gather(mine, kPurpose)[0].note);
}

void CheckpointSaver::finish(const std::string& why, const std::string& notes) {
  phase_ = Phase::idle;
  now_.seconds = time_.total();
  now_.exposed_seconds = time_.exposed(now_.seconds);
  now_.notes = notes;
  if (!why.empty()) {
    now_.error = fmt::format("{}: was not saved: {}",
                             checkpoint_path(folder_, CheckpointName{now_.step}), why);
  }
  reports_.push_back(now_);
}

void CheckpointSaver::wait() {
  check_engine();
  if (phase_ == Phase::idle) return;
  const SaveTime::Exposed exposed(time_);
  const NoTimeout patient(statuses_.world(), "save");
  engine_.states().finish_reads();
  while (phase_ != Phase::idle) {
    engine_.device().transfer().synchronize();
    writer_.join();
    side_.join();
    std::int64_t sum = vote();
    host_all_reduce(statuses_.world(), engine_.device(), View::of(std::span(&sum, 1)),
                    ReduceOp::sum, {std::string(kPurpose), {}});
    counted(sum);
  }
}

void CheckpointSaver::give_up(const std::string& why) {
  if (phase_ != Phase::writing) return wait();
  const NoTimeout patient(statuses_.world(), "save");
  engine_.states().finish_reads();
  engine_.device().transfer().synchronize();
  writer_.join();
  writer_.fail_with(why);
  wait();
}

std::optional<SaveReport> CheckpointSaver::report() {
  if (reports_.empty()) return std::nullopt;
  SaveReport report = reports_.front();
  reports_.pop_front();
  return report;
}

}  // namespace zero
