// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include <utility>
#include <vector>

#include "checkpoint/background_queue.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_options.h"
#include "checkpoint/rank_statuses.h"
#include "engine/state_reader.h"

namespace zero {

/// Saves checkpoints of an engine: makes the folder, lets a BlockWriter write the states while
/// training goes on, and commits once the files of all ranks are durable, as their votes tell. A
/// failure of one rank is the same report on all, and the states stay as they are. Used by the
/// engine's host thread.
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
  /// Between saves.
  void remove_only(RemovesCheckpoint removes) { keep_.removes = std::move(removes); }

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
  /// Adds the time that it lives to the exposed seconds of the save.
  class Exposed;

  bool first() const { return words_.rank() == 0; }
  std::string path_of(std::size_t file) const;
  void detach();
  std::string begin();
  std::string differing_extra(std::span<const RankWord> words);
  void make_files();
  void open_files();
  std::string open_what_is_seen();
  void judge_missing(RankWord& mine, double waited, bool& warned) const;
  std::string missing() const;
  void begin_commit();
  void commit(std::span<const std::uint32_t> sums);
  void abandon(const std::string& why);
  double clock() const;
  void finish(const std::string& why, const std::string& notes);
  void note(const RemovalNotes& notes);

  Engine& engine_;
  std::weak_ptr<const void> engine_life_;
  files::FileSystem& disk_;
  std::string folder_;
  KeepSteps keep_;
  std::chrono::duration<double> look_;
  int exceptions_;  // in flight when the saver was made
  RankStatuses words_;
  BlockWriter writer_;

  Phase phase_ = Phase::idle;
  bool attached_ = false;  // to the engine
  std::chrono::steady_clock::time_point begun_;
  nlohmann::ordered_json extra_;
  std::int64_t skipped_ = 0;  // EngineStates::steps_skipped() when the save began
  std::string owner_;         // of the folder that is being written: a text of this save alone
  SaveReport now_;
  std::deque<SaveReport> reports_;
  int exposing_ = 0;
  double exposed_ = 0;         // seconds
  double exposed_from_ = 0;    // of clock()
  double engine_seconds_ = 0;  // EngineStates::save_seconds() when the save began

  // Of rank 0; while it commits, used by the side thread.
  std::function<void()> before_commit_;
  std::string notes_;
  RankWord committed_;
  std::atomic<bool> commit_ended_{false};
  BackgroundQueue side_;
};

}  // namespace zero
