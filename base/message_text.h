// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// A size of files in the units that disks are sold in: "0.5 kB", "1.5 MB", "12.3 GB".
std::string decimal_bytes(std::int64_t bytes);

/// "1 request", "8 requests": a count with its noun, whose plural ends with s.
std::string counted(std::int64_t count, std::string_view noun);

/// A measured time: "3.2 s"; "40 ms" below 0.1 s.
std::string wait_text(double seconds);

/// A limit of a wait, exactly: "10 s", or "1500 ms" where it is no number of seconds.
std::string timeout_text(std::chrono::milliseconds timeout);

/// "ranks 0-2, 4-7", "rank 3", "no rank".
std::string ranks_text(std::vector<int> ranks);

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
