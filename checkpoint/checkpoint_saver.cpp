// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random_hex.h"
#include "base/seconds_since.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

constexpr std::string_view kSaving = "checkpoint";

/// Text that no earlier process has written.
std::string new_owner() { return random_hex(16); }

/// 16 characters.
std::string hash_of(const nlohmann::ordered_json& values) {
  return fmt::format("{:016x}", hash_text(values.dump(), 0));
}

/// Whether `error` tells that the server has another file under a name than this host remembers:
/// errors of a FileSystem end with the system's reason.
bool is_stale(const Error& error) {
  return std::string_view(error.what()).ends_with(std::generic_category().message(ESTALE));
}

/// A vote of a rank that has failed; one of a rank that has done its part is 1. A sum holds both
/// numbers.
constexpr std::int64_t kFailed = std::int64_t{1} << 32;

nlohmann::ordered_json checked(const nlohmann::ordered_json& extra) {
  if (extra.is_null()) return nlohmann::ordered_json::object();
  ZERO_CHECK(extra.is_object(), "save: the extra values are {}, expected a JSON object",
             extra.type_name());
  return extra;
}

}  // namespace

PartialCheckpoint::PartialCheckpoint(const StateSource& of, const CheckpointOptions& options,
                                     RankStatuses& statuses, BlockWriter& writer)
    : device_(of.engine.device()),
      disk_(of.disk),
      folder_(options.folder),
      keep_{.last = options.keep_last, .every = options.keep_every},
      rules_(options.rules),
      look_(options.look_seconds),
      statuses_(statuses),
      writer_(writer) {}

std::string PartialCheckpoint::open(Content content) {
  content_ = std::move(content);
  notes_.clear();
  begun_ = false;
  RankStatus mine;
  owner_ = new_owner();
  mine.failure = failure_of([&] {
    mine.note = owner_ + hash_of(content_.extra);  // a text in it may be no UTF-8
    if (!first()) return;
    if (rules_ != nullptr && rules_->check) rules_->check();
    begun_ = true;
    note(begin_checkpoint(disk_, folder_, content_.step, writer_.layout(), owner_));
  });
  const std::vector<RankStatus> made = statuses_.all_gather(mine, kSaving);
  if (std::string why = first_failure(made); !why.empty()) return why;
  if (std::string why = differing_extra(made); !why.empty()) return why;
  owner_ = made[0].note.substr(0, owner_.size());
  std::string why = open_what_is_seen();
  if (why.empty()) return why;
  writer_.cancel();
  statuses_.all_gather({}, kSaving);  // behind this, no rank has a file open
  return why;
}

/// Names the first of the trainer's own values that differs, if `statuses` say that any does.
std::string PartialCheckpoint::differing_extra(std::span<const RankStatus> statuses) {
  const std::size_t at = owner_.size();
  const auto same = [&](const RankStatus& status) {
    return status.note.substr(at) == statuses[0].note.substr(at);
  };
  if (std::ranges::all_of(statuses, same)) return "";
  std::string lines;
  for (const auto& [key, value] : content_.extra.items())
    lines += fmt::format("{}: {}\n", nlohmann::json(key).dump(), value.dump());
  return failure_of([&] {
    require_agreement(statuses_.world(), device_, "the extra values of a checkpoint", lines);
  });
}

/// Opens the files that this rank writes.
void PartialCheckpoint::open_files() {
  std::vector<std::unique_ptr<files::OutputFile>> files(writer_.layout().files().size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (writer_.writes(i)) files[i] = disk_.open_write(path_of(i));
  }
  writer_.begin(std::move(files));
}

/// Opens the files on each rank as soon as it sees those that rank 0 has made: a file system of a
/// network remembers for a while that a name was missing, or another file's. The ranks tell each
/// other after each look, so that none waits for files that rank 0 itself has lost. Tells why not,
/// the same on all ranks.
std::string PartialCheckpoint::open_what_is_seen() {
  constexpr std::chrono::milliseconds kBetween{200};
  const auto begin = std::chrono::steady_clock::now();
  bool opened = false;
  for (bool warned = false;;) {
    RankStatus mine;
    mine.failure = failure_of([&] {
      if (!opened || first()) mine.note = missing();
      if (mine.note.empty() && !opened) open_files();
      opened = opened || mine.note.empty();
    });
    if (!mine.note.empty()) judge_missing(mine, seconds_since(begin), warned);
    const std::vector<RankStatus> all = statuses_.all_gather(mine, kSaving);
    if (std::string why = first_failure(all); !why.empty()) return why;
    if (std::ranges::all_of(all, [](const RankStatus& status) { return status.note.empty(); }))
      return "";
    if (!mine.note.empty()) std::this_thread::sleep_for(kBetween);
  }
}

/// Decides what it means that this rank, after looking for `waited` seconds, misses a file.
void PartialCheckpoint::judge_missing(RankStatus& mine, double waited, bool& warned) const {
  constexpr double kSilent = 5;  // seconds
  if (first()) {
    mine.failure = mine.note +
                   ", though this rank has just made it: another process removes files there; end "
                   "that one, or give the run another folder";
  } else if (waited >= look_.count()) {
    mine.failure = mine.note +
                   "; every rank must see the folder of checkpoints: put it on a file system that "
                   "all hosts share";
  }
  const auto limits = statuses_.world().wait_limits();
  if (!mine.failure.empty() || waited < std::min(kSilent, look_.count() / 2) || !limits->warn ||
      std::exchange(warned, true)) {
    return;
  }
  limits->warn(fmt::format("[rank {}] {}; looks again for {:.0f} s", statuses_.rank(), mine.note,
                           look_.count()));
}

/// The first of the files that rank 0 has made which this rank does not see; empty: it sees all.
std::string PartialCheckpoint::missing() const {
  try {
    const std::optional<std::string> owner = owner_of(disk_, folder_, content_.step);
    const std::string path = owner_path(folder_, content_.step);
    if (!owner) return path + ": No such file or directory";
    if (*owner != owner_) return path + ": is another file than the one that rank 0 has made";
    for (std::size_t i = 0; i < writer_.layout().files().size(); ++i) {
      if (!writer_.writes(i) || disk_.kind_of(path_of(i)) != files::PathKind::missing) continue;
      return path_of(i) + ": No such file or directory";
    }
  } catch (const Error& error) {
    if (is_stale(error)) return error.what();
    throw;
  }
  return "";
}

std::string PartialCheckpoint::path_of(std::size_t file) const {
  return partial_path(folder_, content_.step) + "/" + writer_.layout().files()[file].name;
}

void PartialCheckpoint::commit(std::span<const std::uint32_t> checksums) {
  const std::string why = content_.before_commit ? failure_of(content_.before_commit) : "";
  if (!why.empty()) note({why});
  CheckpointIndex index = index_of(writer_.layout(), content_.step, checksums, content_.extra);
  index.steps_skipped = content_.steps_skipped;
  try {
    note(commit_checkpoint(disk_, folder_, index, owner_));
  } catch (...) {
    note(abandon_checkpoint(disk_, folder_, content_.step, writer_.layout(), owner_));
    throw;
  }
  // The checkpoint is whole: what fails from here on is a note.
  if (rules_ != nullptr) keep_.removes = rules_->removes;
  const std::string left =
      failure_of([&] { note(prune_checkpoints(disk_, folder_, keep_, content_.step).notes); });
  if (!left.empty()) note({left});
}

void PartialCheckpoint::remove() {
  if (!begun_) return;
  const std::string failed = failure_of(
      [&] { note(abandon_checkpoint(disk_, folder_, content_.step, writer_.layout(), owner_)); });
  if (!failed.empty()) note({failed});
}

void PartialCheckpoint::note(const RemovalNotes& notes) {
  for (const std::string& each : notes) notes_ += (notes_.empty() ? "" : "\n") + each;
}

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
    abandon(statuses_.failure(writer_.failure(), kSaving));
  } else if (phase_ == Phase::committing && sum > 0) {
    const RankStatus status = statuses_.all_gather(first() ? committed_ : RankStatus(), kSaving)[0];
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
  finish(why, statuses_.all_gather(mine, kSaving)[0].note);
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
                    ReduceOp::sum, {std::string(kSaving), {}});
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
