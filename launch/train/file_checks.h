// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "files/file_system.h"
#include "launch/config/train_config.h"

namespace zero {

/// Throws zero::Error naming key, path and reason unless the files that a run will read and write
/// can be: the last step is too late for a mistyped name. Asked by every rank.
void check_files(const TrainConfig& config);

/// Makes run.checkpoint.folder and missing folders above it, for all ranks, before any other rank
/// looks for its name: a file system of a network remembers for a minute that a name was missing.
void make_checkpoint_folder(const TrainConfig::Checkpoints& checkpoints);

/// Files that a run is going to write.
struct WantedRoom {
  std::string key;     ///< of the configuration: "run.checkpoint.folder"
  std::string folder;  ///< of the files; need not exist
  std::string what;    ///< "the first checkpoint"
  std::int64_t bytes = 0;
  std::string advice{};    ///< beside freeing space, as ", or ..."
  std::int64_t freed = 0;  ///< bytes on that disk that are removed before
};

/// Why a disk has no room for the files, with the bytes that are missing: those of each entry, and
/// of all entries of one disk together. Empty: there is room, or a disk does not tell.
std::string missing_room(files::FileSystem& files, std::span<const WantedRoom> wanted);

}  // namespace zero
