// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_options.h"

namespace zero {

class CheckpointLoader;
class CheckpointSaver;
class Engine;

/// Saves the model states of an engine while training goes on, and loads them at any stage and
/// mesh: a run that is cut and resumed has the bits of one that never was. One folder a
/// checkpoint, which exists under its name only when whole (docs/checkpoints.md). Used by the
/// engine's host thread; collective, between optimizer steps. Allocates its staging memory at
/// construction, on a planning device too, where it saves nothing. The engine must be sealed and
/// outlive this object: once it has ended, calls that need it throw. Of several on one engine, each
/// waits for a save of another that is in flight before it begins its own.
class Checkpointer {
 public:
  Checkpointer(Engine& engine, const CheckpointOptions& options);
  /// Waits for a save in flight; a failure is lost. While an exception unwinds, which other ranks
  /// may not have met, the save is dropped: it commits nothing further.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Begins to save the states as they are, as step EngineStates::steps_done() + steps_skipped(),
  /// with `extra`, the trainer's own values: a JSON object, equal on all ranks; if ranks differ
  /// nothing is saved, and the report names the first that does. The files are written during the
  /// next optimizer step, and are whole some step later: report() tells. Waits first for a save in
  /// flight. A failure to begin is a report too, and so are states that are not finite.
  /// `before_commit` is run by the first rank before the checkpoint is committed, on a thread of
  /// its own; a failure of it is a note of the save.
  void save(const nlohmann::ordered_json& extra, const std::function<void()>& before_commit = {});
  /// Blocks until no save is in flight.
  void wait();
  /// Ends a save in flight without a checkpoint, unless it is being committed; report() has `why`.
  void give_up(const std::string& why);
  /// The oldest finished save not asked for yet.
  std::optional<SaveReport> report();

  /// Loads a checkpoint: "auto": the newest good one in the folder, else nothing; "never": nothing;
  /// else the folder of one checkpoint, or of several, of which the newest. Every block is verified
  /// before it is used. "auto" passes over checkpoints that are proven to be damaged, with a line
  /// each in passed_over(); but not over one that could not be read, nor over what `accept`
  /// refuses, nor if none is left. Throws the same zero::Error on all ranks, naming file, tensor
  /// and offset; the states are then the initial ones. Takes the same memory whatever there is to
  /// load; on a planning device that is all.
  std::optional<Resumed> load(const std::string& which, const AcceptCheckpoint& accept = {});
  /// Why checkpoints were passed over by the last load, newest first.
  const std::vector<std::string>& passed_over() const;
  /// How this process has transferred files, for the log: "io_uring, O_DIRECT for 1.5 GB of 1.5 GB,
  /// registered buffers".
  std::string io_description() const;

 private:
  friend class CheckpointerParts;  // of tests, which leave one of the saver's waits out

  Engine& engine_;
  files::FileSystem& disk_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<CheckpointLoader> loader_;
};

}  // namespace zero
