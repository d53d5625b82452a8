// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "files/file_system.h"

namespace zero::files {

/// The folder that holds `path`; "." if the path names none.
std::string folder_of(const std::string& path);

/// Atomically renames the file `from` to `to`, in the same folder: a reader of `to` finds either
/// the old file or the new one, whole, even after a power cut.
void replace_file(FileSystem& files, const std::string& from, const std::string& to);

/// Throws zero::Error with the reason if `path` cannot become a file: its folder is missing or may
/// not be written to, or something other than a regular file has that name.
void check_target(FileSystem& files, const std::string& path);

}  // namespace zero::files
