// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_options.h"
#include "checkpoint/rank_statuses.h"
#include "engine/engine_states.h"
#include "engine/state_reads.h"

namespace zero {

/// The folder of the checkpoint that is being saved, from its first file to its commit: rank 0
/// makes and commits it, and every rank opens the files that its BlockWriter writes. States: none
/// -> open() -> commit() or remove() -> none.
class PartialCheckpoint {
 public:
  /// `statuses` and `writer`, which are those of the save, outlive this.
  PartialCheckpoint(const StateSource& of, const CheckpointOptions& options, RankStatuses& statuses,
                    BlockWriter& writer);

  /// A checkpoint, beside its states.
  struct Content {
    std::int64_t step = 0;
    std::int64_t steps_skipped = 0;
    nlohmann::ordered_json extra{};
    std::function<void()> before_commit{};  ///< of Checkpointer::save()
  };
  /// Makes the files, and begins the writer with those of this rank. Tells why not, the same on all
  /// ranks, none of which then has a file open. Collective.
  std::string open(Content content);
  /// Rank 0, on any thread, once the files of all ranks are durable. Throws zero::Error; the folder
  /// is then removed.
  void commit(std::span<const std::uint32_t> checksums);
  /// Rank 0, once no rank has a file open.
  void remove();
  /// Rank 0: lines about open(), commit() and remove(), and failures that left a checkpoint whole.
  const std::string& notes() const { return notes_; }

 private:
  bool first() const { return statuses_.rank() == 0; }
  std::string path_of(std::size_t file) const;
  std::string differing_extra(std::span<const RankStatus> statuses);
  void open_files();
  std::string open_what_is_seen();
  void judge_missing(RankStatus& mine, double waited, bool& warned) const;
  std::string missing() const;
  void note(const RemovalNotes& notes);

  Device& device_;
  files::FileSystem& disk_;
  std::string folder_;
  KeepSteps keep_;
  const SaveRules* rules_;  // may be null
  std::chrono::duration<double> look_;
  RankStatuses& statuses_;
  BlockWriter& writer_;
  bool begun_ = false;  // by rank 0: there may be something to remove
  Content content_;
  std::string owner_;  // of the folder: a text of this save alone
  std::string notes_;
};

/// The time of a save, and the part of it that training is held up: while an Exposed lives, and
/// what the engine counts for its reader. In seconds.
class SaveTime {
 public:
  explicit SaveTime(const EngineStates& states) : states_(states) {}

  void begin() {
    begun_ = now();
    exposed_ = 0;
    of_reader_ = states_.save_seconds();
  }
  double total() const { return now() - begun_; }
  /// At most `total`: two readings of clocks are added up.
  double exposed(double total) const {
    const double lasting = exposing_ > 0 ? clock() - exposed_from_ : 0;
    return std::min(exposed_ + states_.save_seconds() - of_reader_ + lasting, total);
  }

  class Exposed {
   public:
    explicit Exposed(SaveTime& time) : time_(time) {
      if (time_.exposing_++ == 0) time_.exposed_from_ = time_.clock();
    }
    ~Exposed() {
      if (--time_.exposing_ == 0) time_.exposed_ += time_.clock() - time_.exposed_from_;
    }
    Exposed(const Exposed&) = delete;
    Exposed& operator=(const Exposed&) = delete;

   private:
    SaveTime& time_;
  };

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  /// Without the time that the engine counts.
  double clock() const { return now() - states_.save_seconds(); }

  const EngineStates& states_;
  double begun_ = 0;         // of now()
  double of_reader_ = 0;     // EngineStates::save_seconds() when the save began
  int exposing_ = 0;         // Exposed that live
  double exposed_ = 0;       // while one lived
  double exposed_from_ = 0;  // of clock()
};

/// Saves checkpoints of an engine: opens a PartialCheckpoint, lets a BlockWriter write the states
/// into its files while training goes on, and lets rank 0 commit it once the files of all ranks are
/// durable, as their votes tell. A failure of one rank is the same report on all, and the states
/// stay as they are. Used by the engine's host thread.
class CheckpointSaver final : public StateReader {
 public:
  /// Collective.
  CheckpointSaver(const StateSource& of, const CheckpointOptions& options);
  /// Waits for a save in flight; while an exception unwinds, drops it.
  ~CheckpointSaver() override;

  /// Checkpointer::save(), wait() and report().
  void save(const nlohmann::ordered_json& extra, const std::function<void()>& before_commit);
  void wait();
  void give_up(const std::string& why);
  std::optional<SaveReport> report();

  BlockWriter& writer() { return writer_; }
  /// Throws zero::Error if the engine has ended.
  void check_engine() const;

  int rounds() const override { return writer_.rounds(); }
  void submit(int round) override { writer_.submit(round); }
  Event read(int unit) override { return writer_.read(unit); }
  std::int64_t vote() override;
  void counted(std::int64_t sum) override;
  /// Ends a save in flight, whose states another reader would keep from being read.
  void replaced() override;

 private:
  enum class Phase : std::uint8_t { idle, writing, committing };

  bool first() const { return statuses_.rank() == 0; }
  void detach();
  void begin_commit();
  void abandon(const std::string& why);
  void finish(const std::string& why, const std::string& notes);

  Engine& engine_;
  std::weak_ptr<const void> engine_life_;
  std::string folder_;
  int exceptions_;  // in flight when the saver was made
  RankStatuses statuses_;
  BlockWriter writer_;
  PartialCheckpoint partial_;
  SaveTime time_;

  Phase phase_ = Phase::idle;
  bool attached_ = false;  // to the engine
  SaveReport now_;
  std::deque<SaveReport> reports_;

  // Of rank 0, whose side thread commits and then sets `commit_ended_`.
  RankStatus committed_;
  std::atomic<bool> commit_ended_{false};
  BackgroundQueue side_;
};

}  // namespace zero
