// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "files/file_system.h"

namespace zero {

/// One line each about what was left behind, for the log: files in a removed folder that no
/// checkpoint wrote, and removals that failed.
using RemovalNotes = std::vector<std::string>;

/// Removes `path`, a folder with the name of a checkpoint in any state (checkpoint_name.h): renames
/// it to step_N.removed, makes that durable, then removes its files; a cut removal is gone on with
/// by purge_checkpoint. A checkpoint's files are those that its index.json lists, those that any
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
