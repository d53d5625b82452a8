// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "files/file_system.h"

namespace zero {

/// Bytes of a small file, at most: a config.json, an index, a tokenizer.
inline constexpr std::int64_t kLargestText = std::int64_t{64} << 20;

/// The content of a small file. Throws zero::Error naming the file if it cannot be read, and
/// DamagedCheckpoint if it is no file or has more than `largest` bytes.
std::string read_text(files::FileSystem& files, const std::string& path,
                      std::int64_t largest = kLargestText);

/// Throws zero::Error naming the file if it has more than `largest` bytes.
void check_size(const files::InputFile& file, std::int64_t largest);

/// All bytes of an open file; the first `most` bytes, or all that it has.
std::string whole_file(files::InputFile& file);
std::string start_of_file(files::InputFile& file, std::size_t most);

/// Makes a file of this content, replacing one that is there, and blocks until the content is on
/// the disk; its name is after a sync of the folder.
void write_text(files::FileSystem& files, const std::string& path, std::string_view text);

}  // namespace zero
