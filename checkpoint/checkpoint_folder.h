// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "files/file_system.h"
#include "weights/checkpoint_index.h"
#include "weights/checkpoint_layout.h"
#include "weights/checkpoint_name.h"

namespace zero {

// The folder that holds the checkpoints of a run, under the names of checkpoint_name.h. A symbolic
// link is read as the folder it leads to; its removal removes the link alone. All functions are
// called by one process at a time.

/// One line each about what was left behind, for the log: files in a removed folder that no
/// checkpoint wrote, and removals that failed.
using RemovalNotes = std::vector<std::string>;

struct FoundCheckpoint {
  CheckpointName name;
  std::string path;     ///< FOLDER/step_00000500
  std::string fault{};  ///< why the checkpoint is not complete; empty: it is
  /// The fault is one of reading, which says nothing about the checkpoint: it may be complete.
  bool unreadable = false;
  /// Of a complete checkpoint: the bytes of its files, and CheckpointIndex::extra.
  std::int64_t bytes = 0;
  nlohmann::ordered_json extra{};

  bool complete() const { return fault.empty(); }
};

/// The checkpoints in `folder`, newest first; of one step the committed first, then one that was
/// being replaced, then what was being written. Complete means what CheckpointReader checks; data
/// is not read. A missing folder has none; a checkpoint that is damaged or cannot be read is never
/// an error. Throws zero::Error if `folder` cannot be listed.
std::vector<FoundCheckpoint> find_checkpoints(files::FileSystem& files, const std::string& folder);

/// The bytes of files that cut saves and removals have left in `folder`, which the next
/// begin_checkpoint removes. What cannot be read counts for nothing.
std::int64_t leftover_bytes(files::FileSystem& files, const std::string& folder);

/// FOLDER/step_00000500.partial, where the ranks write files between begin_checkpoint and
/// commit_checkpoint.
std::string partial_path(const std::string& folder, std::int64_t step);

/// FOLDER/step_N.partial/OWNER, which holds the owner that begin_checkpoint was given until
/// commit_checkpoint: two processes that save the same step in one folder are told apart by it.
std::string owner_path(const std::string& folder, std::int64_t step);

/// Its content; nothing if it is not there.
std::optional<std::string> owner_of(files::FileSystem& files, const std::string& folder,
                                    std::int64_t step);

/// Prepares FOLDER/step_N.partial for the files of `layout`: finishes what an earlier process left
/// half done (puts a replaced checkpoint back whose successor is not there; removes folders of cut
/// saves and removals; a failure with a folder of another step is a note), asks for free space,
/// makes the folders, OWNER, and the files at their sizes, empty. The files' heads are part of
/// their blocks, which the ranks write. `owner` is a text of this save alone. Called by one rank;
/// the others open the files after it. Throws zero::Error naming the path and the reason.
RemovalNotes begin_checkpoint(files::FileSystem& files, const std::string& folder,
                              std::int64_t step, const CheckpointLayout& layout,
                              const std::string& owner);

/// Commits FOLDER/step_N.partial, whose files every rank has written and synced: makes the files
/// and folders durable, writes index.json and COMMIT, and renames the folder, which is the commit.
/// A committed checkpoint of the same step stays loadable until then, and is removed after; one
/// that cannot be read may be good, and stays as step_N.old. Called by one rank. Throws zero::Error
/// naming the path and the reason. Nothing is committed then, unless the sync behind the rename
/// failed: the checkpoint is whole, and a power cut may lose it. Refuses a folder that
/// begin_checkpoint has made for another owner since, and leaves it alone. What fails after the
/// commit is a note.
RemovalNotes commit_checkpoint(files::FileSystem& files, const std::string& folder,
                               const CheckpointIndex& index, const std::string& owner);

/// Removes FOLDER/step_N.partial after a save that failed, if it is the owner's. Throws nothing for
/// what cannot be removed: that is a note, and the next begin_checkpoint tries again.
RemovalNotes abandon_checkpoint(files::FileSystem& files, const std::string& folder,
                                std::int64_t step, const CheckpointLayout& layout,
                                const std::string& owner);

struct KeepSteps {
  int last = 0;            ///< the newest complete checkpoints that are kept; 0: all
  std::int64_t every = 0;  ///< multiples of this step are kept for good; 0: none
  /// Checkpoints for which this returns false are always kept and do not count towards `last`.
  /// Null: all may be removed.
  std::function<bool(std::int64_t step, const nlohmann::ordered_json& extra)> removes{};
};

struct Pruned {
  std::vector<std::int64_t> steps;  ///< removed, newest first
  RemovalNotes notes;
};

/// Removes complete checkpoints but those that `keep` keeps, counted from `newest` back: a run that
/// was resumed at an older step keeps the one just saved, and leaves those ahead of it alone. The
/// newest complete one is never removed, nor is anything that is not complete. A failure is a note.
Pruned prune_checkpoints(files::FileSystem& files, const std::string& folder, const KeepSteps& keep,
                         std::int64_t newest = std::numeric_limits<std::int64_t>::max());

/// Removes `path`, a folder with the name of a checkpoint in any state (checkpoint_name.h): renames
/// it to step_N.removed, makes that durable, then removes its files; purge_checkpoint goes on with
/// a cut removal. A checkpoint's files are those that its index.json lists, those that any
/// checkpoint has (COMMIT, index.json, OWNER, weights/model*.safetensors, ...), and those of
/// `more`, names in the folder. Other files are kept, and noted. Throws zero::Error if the folder
/// cannot be renamed; it is then unchanged. A failure to remove a file is a note.
RemovalNotes remove_checkpoint(files::FileSystem& files, const std::string& path,
                               const std::set<std::string>& more = {});

/// Removes a checkpoint's files from `path`, a folder step_N.removed, and the folder if nothing
/// else is in it. Likewise.
RemovalNotes purge_checkpoint(files::FileSystem& files, const std::string& path,
                              const std::set<std::string>& more = {});

}  // namespace zero
