// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero {

// Models as other programs save them, in formats that are not read: how one is known, and what
// makes of it a folder that is read.

/// Bytes of a file's start that foreign_file() looks at, at most.
inline constexpr std::size_t kForeignStart = 16;

/// What the file that begins with `start` is, as "is a GGUF file ...; give ..."; empty if it is
/// none of the formats known here.
std::string foreign_file(std::string_view start);
/// Likewise of the file at `path`; empty too if it cannot be read.
std::string foreign_file_at(const std::string& path);

/// What `folder` holds instead of a model's safetensors files, as "it holds ...: ..."; empty if
/// nothing is known. Folders and files that cannot be read count as empty.
std::string foreign_folder(const std::string& folder);

}  // namespace zero
