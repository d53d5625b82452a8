// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero {

// Text from outside (another process, a file, a model) made safe for a terminal: control characters
// and bytes that are not UTF-8 become '?'.

/// For one line of a message: newlines and tabs become '?' too, and text beyond `most` bytes "...".
std::string printable_line(std::string_view text, std::size_t most = 1024);
/// For text of several lines: newlines and tabs stay.
std::string printable_text(std::string_view text);

}  // namespace zero
