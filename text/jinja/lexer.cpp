// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/text.h"

namespace zero::jinja {
namespace {

constexpr auto kNone = std::string_view::npos;

bool is_blank(char c) { return (c >= '\t' && c <= '\r') || c == ' '; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Lines end with "\n", and the last one not.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// The characters of a string literal between its quotes.
class Literal {
 public:
  Literal(std::string_view raw, int line) : raw_(raw), line_(line) {}

  std::string value() {
    while (at_ < raw_.size()) {
      if (raw_[at_] == '\\') {
        escape();
      } else {
        out_ += raw_[at_++];
      }
    }
    return out_;
  }

 private:
  void escape() {
    constexpr std::string_view kNames = "ntr\\'\"abfv";
    constexpr std::string_view kValues = "\n\t\r\\'\"\a\b\f\v";
    const char c = raw_[at_ + 1];
    at_ += 2;
    if (const auto found = kNames.find(c); found != kNone) {
      out_ += kValues[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      number(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      --at_;
      std::size_t digits = 1;
      while (digits < 3 && at_ + digits < raw_.size() && raw_[at_ + digits] >= '0' &&
             raw_[at_ + digits] <= '7') {
        ++digits;
      }
      number(digits, 8);
    } else if (c == 'N') {
      refuse(line_, "a string has \\N{...}; write the character itself");
    } else if (c != '\n') {
      out_ += '\\';
      out_ += c;
    }
  }

  void number(std::size_t digits, int base) {
    const std::string_view text = raw_.substr(at_, digits);
    std::uint32_t code = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, code, base);
    const bool good = text.size() == digits && parsed.ec == std::errc() && parsed.ptr == end &&
                      code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    if (!good) refuse(line_, "a string has an escape that is no character");
    append_utf8(out_, code);
    at_ += digits;
  }

  std::string_view raw_;
  int line_;
  std::size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool here(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void advance(std::size_t to) {
    const std::string_view passed = text_.substr(at_, to - at_);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
    at_ = to;
  }
  void skip_blanks() {
    std::size_t to = at_;
    while (to < text_.size() && is_blank(text_[to])) ++to;
    advance(to);
  }

  /// Text up to the next tag, and the tag.
  void data() {
    std::size_t tag = at_;
    do {
      tag = text_.find('{', tag);
      if (tag == kNone || tag + 1 >= text_.size()) tag = text_.size();
    } while (tag < text_.size() && std::string_view("{%#").find(text_[tag + 1]) == kNone && ++tag);
    if (tag >= text_.size()) {
      add(TokenKind::data, std::string(text_.substr(at_)));
      return advance(text_.size());
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    add_data(tag, sign, kind);
    advance(tag);
    const bool signed_tag = sign == '-' || sign == '+';
    advance(tag + (signed_tag ? 3 : 2));
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, "");
    inside(kind);
  }

  /// The text before a tag, as the tag's sign has its white space.
  void add_data(std::size_t end, char sign, char kind) {
    Text before(text_.substr(at_, end - at_), Origin::from_template);
    if (sign == '-') {
      before = stripped(before, Sides::right, nullptr);
    } else if (sign != '+' && kind != '{') {
      const std::size_t line = before.bytes().rfind('\n') + 1;  // 0 without one
      const bool starts = line > 0 || line_starting_;
      const Text last = before.part(line, before.size());
      if (starts && stripped(last, Sides::both, nullptr).empty()) before = before.part(0, line);
    }
    if (!before.empty()) add(TokenKind::data, before.bytes());
  }

  /// Behind what ends a tag of blocks or comments.
  std::optional<std::size_t> tag_end(std::string_view closing) {
    const std::string minus = fmt::format("-{}", closing);
    if (here(fmt::format("+{}", closing))) return at_ + 1 + closing.size();
    std::size_t end = 0;
    if (here(minus)) {
      end = at_ + minus.size();
      while (end < text_.size() && is_space_at(end)) end += utf8_start(text_.substr(end)).bytes;
      return end;
    }
    if (!here(closing)) return std::nullopt;
    end = at_ + closing.size();
    return end < text_.size() && text_[end] == '\n' && closing != "}}" ? end + 1 : end;
  }
  bool is_space_at(std::size_t at) const {
    return is_space(code_point(text_.substr(at, utf8_start(text_.substr(at)).bytes)));
  }

  void comment() {
    const std::size_t closing = text_.find("#}", at_);
    if (closing == kNone) refuse(line_, "Missing end of comment tag");
    const bool is_signed =
        closing > at_ && (text_[closing - 1] == '-' || text_[closing - 1] == '+');
    advance(is_signed ? closing - 1 : closing);
    advance(*tag_end("#}"));
  }

  /// Whether the tag is {% raw %}, whose text is then taken.
  bool raw() {
    std::size_t to = at_;
    while (to < text_.size() && is_blank(text_[to])) ++to;
    if (!text_.substr(to).starts_with("raw")) return false;
    to += 3;
    while (to < text_.size() && is_blank(text_[to])) ++to;
    const bool minus = text_.substr(to).starts_with("-%}");
    if (!minus && !text_.substr(to).starts_with("%}")) return false;
    advance(to + (minus ? 3 : 2));
    if (minus) skip_blanks();
    for (std::size_t end = at_; (end = text_.find("{%", end)) != kNone; ++end) {
      std::size_t name = end + 2;
      const char sign = name < text_.size() ? text_[name] : ' ';
      if (sign == '-' || sign == '+') ++name;
      while (name < text_.size() && is_blank(text_[name])) ++name;
      if (!text_.substr(name).starts_with("endraw")) continue;
      add_data(end, sign, '%');
      advance(name + 6);
      skip_blanks();
      const auto behind = tag_end("%}");
      if (!behind) refuse(line_, "expected the end of a tag behind endraw");
      advance(*behind);
      return true;
    }
    refuse(line_, "Missing end of raw directive");
  }

  /// What a tag has, and its end.
  void inside(char kind) {
    std::string open;  // brackets
    const std::string_view closing = kind == '{' ? "}}" : "%}";
    for (;;) {
      if (open.empty() && (kind != '{' || !here("+"))) {
        if (const auto end = tag_end(closing)) {
          add(kind == '{' ? TokenKind::variable_end : TokenKind::block_end, "");
          return advance(*end);
        }
      }
      if (at_ >= text_.size()) refuse(line_, "a tag has no end");
      const char c = text_[at_];
      if (is_blank(c)) {
        skip_blanks();
      } else if (is_digit(c)) {
        number();
      } else if (begins_name(c)) {
        std::size_t to = at_;
        while (to < text_.size() && (begins_name(text_[to]) || is_digit(text_[to]))) ++to;
        add(TokenKind::name, std::string(text_.substr(at_, to - at_)));
        advance(to);
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        sign(open);
      }
    }
  }

  void number() {
    std::size_t to = at_;
    const auto digits = [&] {
      while (to < text_.size() && (is_digit(text_[to]) || text_[to] == '_')) ++to;
    };
    const auto digit_at = [&](std::size_t at) { return at < text_.size() && is_digit(text_[at]); };
    digits();
    if (to == at_ + 1 && text_[at_] == '0' && to < text_.size() && begins_name(text_[to])) {
      refuse(line_, "a number is not decimal; write it in digits");
    }
    bool real = false;
    const bool behind_dot = !tokens_.empty() && tokens_.back().is(TokenKind::sign, ".");
    if (!behind_dot && to < text_.size() && text_[to] == '.' && digit_at(to + 1)) {
      real = true;
      ++to;
      digits();
    }
    if (!behind_dot && to < text_.size() && (text_[to] == 'e' || text_[to] == 'E')) {
      const bool is_signed =
          to + 1 < text_.size() && (text_[to + 1] == '-' || text_[to + 1] == '+');
      if (digit_at(to + (is_signed ? 2 : 1))) {
        real = true;
        to += is_signed ? 2 : 1;
        digits();
      }
    }
    std::string text(text_.substr(at_, to - at_));
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(to);
  }

  void string(char quote) {
    std::size_t to = at_ + 1;
    while (to < text_.size() && text_[to] != quote) to += text_[to] == '\\' ? 2 : 1;
    if (to >= text_.size()) refuse(line_, "a string has no end");
    add(TokenKind::string, Literal(text_.substr(at_ + 1, to - at_ - 1), line_).value());
    advance(to + 1);
  }

  void sign(std::string& open) {
    constexpr std::array<std::string_view, 6> kDouble{"==", "!=", ">=", "<=", "//", "**"};
    for (const std::string_view each : kDouble) {
      if (!here(each)) continue;
      add(TokenKind::sign, std::string(each));
      return advance(at_ + 2);
    }
    const char c = text_[at_];
    if (std::string_view("+-*/%~()[]{}<>=.:|,;").find(c) == kNone) {
      refuse(line_, fmt::format("unexpected char '{}'",
                                text_.substr(at_, utf8_start(text_.substr(at_)).bytes)));
    }
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (!open.ends_with(opening)) refuse(line_, fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    add(TokenKind::sign, std::string(1, c));
    advance(at_ + 1);
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(normalized(source)).run(); }

std::vector<std::string> literal_texts(std::string_view source) {
  std::vector<Token> tokens;
  try {
    tokens = tokens_of(source);
  } catch (const Error&) {  // Template says so when a chat asks for it
    return {std::string(source)};
  }
  std::vector<std::string> texts;
  for (Token& token : tokens) {
    const bool writes = token.kind == TokenKind::data || token.kind == TokenKind::string;
    if (writes) texts.push_back(std::move(token.text));
  }
  return texts;
}

void refuse(int line, const std::string& message) { fail("line {}: {}", line, message); }

}  // namespace zero::jinja
