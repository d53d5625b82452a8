// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace zero {

/// Bytes at the start of a file that tell a Git LFS pointer.
inline constexpr std::size_t kLfsStart = 35;

/// Throws zero::Error naming `file`, and what brings its content, if `start`, the first bytes of
/// the file, are those of a Git LFS pointer: what a clone without Git LFS has in place of a large
/// file.
void refuse_lfs_pointer(std::string_view file, std::string_view start);

}  // namespace zero
