// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// GPT-2's way to write bytes as visible characters: printable ASCII and Latin-1 as they are, the
/// other bytes as U+0100, U+0101, ... in their order.
std::string byte_level_text(unsigned char byte);
/// The bytes written as `text`, which is UTF-8; nothing if a character stands for no byte.
std::optional<std::string> byte_level_bytes(std::string_view text);

/// The tokenizer.json of the tokenizer "bytes", for other programs: each byte is the token of that
/// id, and there are no merges.
std::string byte_tokenizer_json();

}  // namespace zero
