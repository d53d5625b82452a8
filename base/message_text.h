// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zero {

/// A size of files in the units that disks are sold in: "0.5 kB", "1.5 MB", "12.3 GB".
std::string decimal_bytes(std::int64_t bytes);

/// "1 request", "8 requests": a count with its noun, whose plural ends with s.
std::string counted(std::int64_t count, std::string_view noun);

/// A tensor's shape in messages: "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

// Text from outside (another process, a file, a model) made safe for a terminal: control
// characters, Unicode's overrides, embeddings and isolates, which show text in another order than
// it has, and bytes that are not UTF-8 become '?'.

/// For one line of a message: newlines, tabs and marks of direction become '?' too, and text beyond
/// `most` bytes "...".
std::string printable_line(std::string_view text, std::size_t most = 1024);
/// For text of several lines: newlines, tabs and marks of direction stay.
std::string printable_text(std::string_view text);

}  // namespace zero
