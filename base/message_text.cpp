// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/message_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/utf8.h"

namespace zero {
namespace {

/// Bytes of the UTF-8 character at the start of `text`, or 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const Utf8Start start = utf8_start(text);
  // Some terminals treat C1 controls as commands.
  const bool c1 =
      text[0] == '\xc2' && start.bytes == 2 && static_cast<unsigned char>(text[1]) < 0xa0;
  return start.kind == Utf8Start::Kind::character && !c1 ? start.bytes : 0;
}

/// Whether `character` makes a terminal show the characters behind it in another order.
bool overrides_order(std::string_view character) {
  const char32_t point = code_point(character);
  return (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

/// Whether `character` is an unseen mark of a direction, which moves punctuation beside it.
bool is_direction_mark(std::string_view character) {
  const char32_t point = code_point(character);
  return point == 0x061c || point == 0x200e || point == 0x200f;
}

enum class Lines : std::uint8_t { one, several };

/// `text` with '?' for all that is unsafe; of several lines newlines, tabs and marks stay.
std::string printable(std::string_view text, Lines lines) {
  const std::string_view kept = lines == Lines::one ? "" : "\n\t";
  std::string out;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const bool control = c < 0x20 || c == 0x7f;
    const bool refused = control && kept.find(text[0]) == std::string_view::npos;
    const std::size_t length = refused ? 0 : utf8_length(text);
    const std::string_view character = text.substr(0, length);
    const bool shown = length > 0 && !overrides_order(character) &&
                       (lines == Lines::several || !is_direction_mark(character));
    out += shown ? character : "?";
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace

std::string printable_line(std::string_view text, std::size_t most) {
  return printable(text.substr(0, most), Lines::one) + (text.size() > most ? "..." : "");
}

std::string printable_text(std::string_view text) { return printable(text, Lines::several); }

std::string decimal_bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e6) return fmt::format("{:.1f} kB", value / 1e3);
  return value < 1e9 ? fmt::format("{:.1f} MB", value / 1e6)
                     : fmt::format("{:.1f} GB", value / 1e9);
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string wait_text(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.0f} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds);
}

std::string timeout_text(std::chrono::milliseconds timeout) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(timeout);
  return timeout == whole && whole.count() > 0 ? fmt::format("{} s", whole.count())
                                               : fmt::format("{} ms", timeout.count());
}

std::string ranks_text(std::vector<int> ranks) {
  if (ranks.empty()) return "no rank";
  std::ranges::sort(ranks);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                 : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(parts, ", "));
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace zero
