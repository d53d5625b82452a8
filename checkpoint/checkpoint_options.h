// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "architecture/name_map.h"
#include "files/file_system.h"

namespace zero {

/// The states that a save takes: a save of others fails, and the checkpoints before it stay.
enum class SaveStates : std::uint8_t {
  finite,  ///< no element is NaN or infinite: a run that diverged is not saved over a good one
  any,
};

/// What saves ask of the program, on the first rank; may change between saves.
struct SaveRules {
  /// Called before a save makes anything: what it throws is why nothing is saved.
  std::function<void()> check{};
  /// Whether later saves may remove a checkpoint, for keep_last, which then counts only such;
  /// empty: all may be. Called on a thread of its own; a failure of it is a note of the save.
  std::function<bool(std::int64_t step, const nlohmann::ordered_json& extra)> removes{};
};

struct CheckpointOptions {
  std::string folder;                               ///< of all checkpoints of the run
  int keep_last = 0;                                ///< newest checkpoints kept; 0: all
  std::int64_t keep_every = 0;                      ///< steps kept for good; 0: none
  std::int64_t file_bytes = std::int64_t{4} << 30;  ///< files are cut at this size
  /// Small files of the folder `weights`, by name: config.json, a tokenizer.
  std::map<std::string, std::string> weight_files{};
  NameMap names = names::plain();  ///< the names of tensors in files
  SaveStates states = SaveStates::finite;
  const SaveRules* rules = nullptr;   ///< outlives the Checkpointer; null: no rules
  files::FileSystem* disk = nullptr;  ///< null: files::disk()
  /// For which ranks look for the files that the first rank has made: a file system of a network
  /// may show new names only after a minute.
  double look_seconds = 75;
};

/// A finished save; equal on all ranks except for times.
struct SaveReport {
  std::int64_t step = 0;
  std::int64_t bytes = 0;
  double seconds = 0;          ///< from save() until older checkpoints were removed
  double exposed_seconds = 0;  ///< that training was held up
  std::string error{};         ///< why nothing was saved, the same text on all ranks; empty: saved
  std::string notes{};  ///< lines about older checkpoints that could not be removed, and such
};

/// The checkpoint that load() has loaded.
struct Resumed {
  std::int64_t step = 0;
  std::string folder;  ///< "runs/a/step_00000500"
};

/// Decides, before anything changes, whether a checkpoint may be loaded; throws zero::Error if
/// not. Called on every rank alike.
using AcceptCheckpoint = std::function<void(const nlohmann::ordered_json& extra)>;

}  // namespace zero
