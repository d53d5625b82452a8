// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

namespace zero {
namespace {

/// Bytes of the character that begins with `first`, and the range of the second byte.
struct Lead {
  std::size_t bytes;
  unsigned char low;
  unsigned char high;
};

Lead lead_of(unsigned char first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xc2 || first > 0xf4) return {0, 0, 0};
  if (first < 0xe0) return {2, 0x80, 0xbf};
  if (first < 0xf0) {
    return {3, static_cast<unsigned char>(first == 0xe0 ? 0xa0 : 0x80),
            static_cast<unsigned char>(first == 0xed ? 0x9f : 0xbf)};
  }
  return {4, static_cast<unsigned char>(first == 0xf0 ? 0x90 : 0x80),
          static_cast<unsigned char>(first == 0xf4 ? 0x8f : 0xbf)};
}

}  // namespace

Utf8Start utf8_start(std::string_view text) {
  using enum Utf8Start::Kind;
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0) return {invalid, 1};
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {unfinished, i};
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool follows = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xc0U) == 0x80U;
    if (!follows) return {invalid, i};
  }
  return {character, lead.bytes};
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Start start = utf8_start(text.substr(at));
    if (start.kind != Utf8Start::Kind::character) return at;
    at += start.bytes;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Start start = utf8_start(text);
    out += start.kind == Utf8Start::Kind::character ? text.substr(0, start.bytes)
                                                    : kReplacementCharacter;
    text.remove_prefix(start.bytes);
  }
  return out;
}

char32_t code_point(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t value = text.size() == 1 ? first : first & (0x7fU >> text.size());
  for (const char c : text.substr(1)) value = value << 6U | (static_cast<unsigned char>(c) & 0x3fU);
  return value;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto byte = [&](char32_t bits) { text += static_cast<char>(bits); };
  if (code_point < 0x80) return byte(code_point);
  if (code_point < 0x800) {
    byte(0xc0U | code_point >> 6U);
  } else if (code_point < 0x10000) {
    byte(0xe0U | code_point >> 12U);
    byte(0x80U | (code_point >> 6U & 0x3fU));
  } else {
    byte(0xf0U | code_point >> 18U);
    byte(0x80U | (code_point >> 12U & 0x3fU));
    byte(0x80U | (code_point >> 6U & 0x3fU));
  }
  byte(0x80U | (code_point & 0x3fU));
}

}  // namespace zero
