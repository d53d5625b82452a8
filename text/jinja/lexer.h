// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero::jinja {

enum class TokenKind : std::uint8_t {
  data,  ///< text between tags, as it is written
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,  ///< its value
  integer,
  real,
  sign,  ///< an operator or a bracket
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text{};
  int line = 1;

  bool is(TokenKind of, std::string_view with) const { return kind == of && text == with; }
};

/// The tokens of a template, with the white space around tags as trim_blocks and lstrip_blocks have
/// it and the last line's end left out; the last token is `end`. Throws zero::Error "line N: ...".
std::vector<Token> tokens_of(std::string_view source);

/// What the data and the string literals of a template say; `source` itself if it is no template.
std::vector<std::string> literal_texts(std::string_view source);

/// Throws zero::Error naming the line.
[[noreturn]] void refuse(int line, const std::string& message);

}  // namespace zero::jinja
