// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "files/file_system.h"

namespace zero {

/// Files that a program is going to write.
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
