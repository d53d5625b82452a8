// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/background_queue.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_options.h"
#include "checkpoint/partial_checkpoint.h"
#include "checkpoint/rank_statuses.h"
#include "checkpoint/save_time.h"
#include "engine/state_reader.h"

namespace zero {

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
  /// Between saves.
  void remove_only(RemovesCheckpoint removes) { partial_.remove_only(std::move(removes)); }

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
