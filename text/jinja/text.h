// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero::jinja {

/// Who wrote a byte.
enum class Origin : char { from_template = 0, content = 1 };
/// The origin of a value that is made of both.
constexpr Origin joined(Origin a, Origin b) { return a == Origin::content ? a : b; }

/// UTF-8 in which each byte remembers its origin, through all operations, and each place whether
/// contents stand there without a byte: what the template wrote before and behind such a border
/// are two texts. Positions are bytes; the functions on characters below keep to their borders.
class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, Origin origin)
      : bytes_(bytes),
        origins_(bytes.size(), static_cast<char>(origin)),
        border_at_end_(bytes.empty() && origin == Origin::content),
        touched_(origin == Origin::content) {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  Origin origin(std::size_t at) const { return static_cast<Origin>(origins_[at] & kContent); }
  /// The origin of a value that is made of the whole text: content if a byte is, or there is a
  /// border.
  Origin origin() const { return touched_ ? Origin::content : Origin::from_template; }
  /// Whether contents without a byte stand before the byte `at`, or at the end.
  bool border(std::size_t at) const {
    return at < origins_.size() ? (origins_[at] & kBorder) != 0 : border_at_end_;
  }

  void append(const Text& text);
  void append(std::string_view bytes, Origin origin);
  /// What was made of the bytes from `begin` to `end` of `text`, which are of one origin.
  void append(std::string_view bytes, const Text& text, std::size_t begin, std::size_t end);
  /// Where contents are cut off, a border stays.
  Text part(std::size_t begin, std::size_t end) const;

 private:
  static constexpr char kContent = 1;
  static constexpr char kBorder = 2;

  void move_border_to(std::size_t at);

  std::string bytes_;
  std::string origins_;  // of each byte, with kBorder for a border before it
  bool border_at_end_ = false;
  bool touched_ = false;  // a byte is content, or there is a border
};

/// Where each character begins, and the end.
std::vector<std::size_t> character_borders(std::string_view text);
/// What Python's str.isspace() says.
bool is_space(char32_t code);

enum class Sides : std::uint8_t { left, right, both };
/// Without the characters of `set` at its sides; those that are white space in Python if `set` is
/// null.
Text stripped(const Text& text, Sides sides, const std::string* set);
/// At most `most` times (negative: always) `to` for `from`; an empty `from` is at each border.
Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t most);
/// Python's str.split(): by runs of white space if `separator` is null.
std::vector<Text> split(const Text& text, const std::string* separator, std::int64_t most);
std::vector<Text> split_from_right(const Text& text, const std::string& separator,
                                   std::int64_t most);
std::vector<Text> split_lines(const Text& text);
struct Line {
  Text text;
  Text end;  ///< the characters that end it; empty where the text does
};
std::vector<Line> lines_of(const Text& text);

enum class Case : std::uint8_t { upper, lower, title, capital };
/// Throws zero::Error for characters whose case is several characters.
Text in_case(const Text& text, Case wanted);

/// Python's repr() of a string.
Text quoted(const Text& text);
/// JSON's, as json.dumps writes it.
enum class Escapes : std::uint8_t { needed, all_but_ascii };
Text json_quoted(const Text& text, Escapes escapes);

}  // namespace zero::jinja
