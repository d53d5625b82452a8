// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace zero::jinja {
namespace {

char32_t character_at(std::string_view text, std::size_t begin, std::size_t end) {
  return code_point(text.substr(begin, end - begin));
}

bool in_set(std::string_view character, const std::string* set) {
  return set == nullptr ? is_space(code_point(character)) : set->find(character) != set->npos;
}

/// Where the next line ends, and where its end does.
std::pair<std::size_t, std::size_t> line_end(const std::string& text, std::size_t from) {
  constexpr std::string_view kWide[] = {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
  for (std::size_t at = from; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\r') return {at, at + (at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1)};
    if ((c >= '\n' && c <= '\f') || (c >= '\x1c' && c <= '\x1e')) return {at, at + 1};
    for (const std::string_view wide : kWide) {
      if (text.compare(at, wide.size(), wide) == 0) return {at, at + wide.size()};
    }
  }
  return {text.size(), text.size()};
}

char32_t cased(char32_t code, Case wanted) {
  const auto number = static_cast<utf8proc_int32_t>(code);
  const auto category = utf8proc_category(number);
  const bool upper = wanted == Case::upper;
  const auto result = static_cast<char32_t>(upper                   ? utf8proc_toupper(number)
                                            : wanted == Case::lower ? utf8proc_tolower(number)
                                                                    : utf8proc_totitle(number));
  const bool whole = (code >= 0x1f80 && code <= 0x1ffc) || code == 0xdf || code == 0x149 ||
                     code == 0x1f0 || code == 0x390 || code == 0x3b0 || code == 0x587 ||
                     (code >= 0x1e96 && code <= 0x1e9a) || (code >= 0xfb00 && code <= 0xfb17);
  const bool greek =
      category == UTF8PROC_CATEGORY_LL && result == code && code >= 0x1f00 && code < 0x2000;
  const bool several = wanted == Case::lower ? code == 0x130 || code == 0x3a3 : whole || greek;
  if (several) fail("the case of U+{:04X} depends on more than itself", std::uint32_t{code});
  return result;
}

bool printable(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  if (code == ' ') return true;
  return category != UTF8PROC_CATEGORY_CN &&
         (category < UTF8PROC_CATEGORY_ZS || category > UTF8PROC_CATEGORY_CO);
}

std::string python_escape(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  const auto number = std::uint32_t{code};
  if (number < 0x100) return fmt::format("\\x{:02x}", number);
  return number < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number);
}

std::string json_escape(char32_t code) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '"':
    case '\\':
      return fmt::format("\\{}", static_cast<char>(code));
    default:
      break;
  }
  auto number = std::uint32_t{code};
  if (number < 0x10000) return fmt::format("\\u{:04x}", number);
  number -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (number >> 10U), 0xdc00 + (number & 0x3ffU));
}

}  // namespace

/// The border at the end is now before the byte `at`, if there is one.
void Text::move_border_to(std::size_t at) {
  if (!border_at_end_ || at >= origins_.size()) return;
  origins_[at] = static_cast<char>(origins_[at] | kBorder);
  border_at_end_ = false;
}

void Text::append(const Text& text) {
  const std::size_t at = size();
  bytes_ += text.bytes_;
  origins_ += text.origins_;
  move_border_to(at);
  border_at_end_ |= text.border_at_end_;
  touched_ |= text.touched_;
}

void Text::append(std::string_view bytes, Origin origin) {
  const std::size_t at = size();
  bytes_ += bytes;
  origins_.append(bytes.size(), static_cast<char>(origin));
  move_border_to(at);
  if (origin == Origin::from_template) return;
  touched_ = true;
  border_at_end_ |= bytes.empty();
}

void Text::append(std::string_view bytes, const Text& text, std::size_t begin, std::size_t end) {
  if (text.border(begin)) append("", Origin::content);
  append(bytes, text.origin(begin));
  if (text.border(end)) append("", Origin::content);
}

Text Text::part(std::size_t begin, std::size_t end) const {
  begin = std::min(begin, size());
  end = std::max(begin, std::min(end, size()));
  const bool cut_before = begin > 0 && origin(begin - 1) == Origin::content;
  const bool cut_behind = end < size() && origin(end) == Origin::content;
  Text out;
  out.bytes_ = bytes_.substr(begin, end - begin);
  out.origins_ = origins_.substr(begin, end - begin);
  out.border_at_end_ = cut_before || border(begin);
  out.move_border_to(0);
  out.border_at_end_ |= cut_behind || border(end);
  out.touched_ = out.border_at_end_ || out.origins_.find_first_not_of('\0') != std::string::npos;
  return out;
}

std::vector<std::size_t> character_borders(std::string_view text) {
  std::vector<std::size_t> borders;
  for (std::size_t at = 0; at < text.size(); at += utf8_start(text.substr(at)).bytes) {
    borders.push_back(at);
  }
  borders.push_back(text.size());
  return borders;
}

bool is_space(char32_t code) {
  if ((code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20)) return true;
  if (code < 0x80) return false;
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

Text stripped(const Text& text, Sides sides, const std::string* set) {
  const std::string& bytes = text.bytes();
  const std::string_view view = bytes;
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (sides != Sides::right && begin < end) {
    const std::size_t length = utf8_start(view.substr(begin)).bytes;
    if (!in_set(view.substr(begin, length), set)) break;
    begin += length;
  }
  while (sides != Sides::left && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(bytes[last]) & 0xc0U) == 0x80U) --last;
    if (!in_set(view.substr(last, end - last), set)) break;
    end = last;
  }
  return text.part(begin, end);
}

Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t most) {
  const Origin chosen = from.origin();  // where it is found, the text falls into two
  Text out = text.part(0, 0);
  const auto put = [&] {
    if (chosen == Origin::content) out.append("", chosen);
    out.append(to);
    if (chosen == Origin::content) out.append("", chosen);
  };
  if (from.empty()) {
    const auto borders = character_borders(text.bytes());
    for (std::size_t i = 0; i < borders.size(); ++i) {
      if (most < 0 || static_cast<std::int64_t>(i) < most) put();
      if (i + 1 < borders.size()) out.append(text.part(borders[i], borders[i + 1]));
    }
    return out;
  }
  std::size_t done = 0;
  for (; most != 0; --most) {
    const std::size_t at = text.bytes().find(from.bytes(), done);
    if (at == std::string::npos) break;
    out.append(text.part(done, at));
    put();
    done = at + from.size();
  }
  out.append(text.part(done, text.size()));
  return out;
}

std::vector<Text> split(const Text& text, const std::string* separator, std::int64_t most) {
  std::vector<Text> parts;
  const std::string& bytes = text.bytes();
  std::size_t done = 0;
  if (separator != nullptr) {
    for (; most != 0; --most) {
      const std::size_t at = bytes.find(*separator, done);
      if (at == std::string::npos) break;
      parts.push_back(text.part(done, at));
      done = at + separator->size();
    }
    parts.push_back(text.part(done, bytes.size()));
    return parts;
  }
  const auto borders = character_borders(bytes);
  const auto space = [&](std::size_t i) {
    return is_space(character_at(bytes, borders[i], borders[i + 1]));
  };
  const std::size_t characters = borders.size() - 1;
  for (std::size_t i = 0; i < characters;) {
    if (space(i)) {
      ++i;
      continue;
    }
    if (most-- == 0) {
      parts.push_back(stripped(text.part(borders[i], bytes.size()), Sides::right, nullptr));
      break;
    }
    const std::size_t begin = i;
    while (i < characters && !space(i)) ++i;
    parts.push_back(text.part(borders[begin], borders[i]));
  }
  return parts;
}

std::vector<Text> split_from_right(const Text& text, const std::string& separator,
                                   std::int64_t most) {
  std::vector<Text> parts;
  std::size_t end = text.size();
  for (; most != 0 && end >= separator.size(); --most) {
    const std::size_t at = text.bytes().rfind(separator, end - separator.size());
    if (at == std::string::npos) break;
    parts.push_back(text.part(at + separator.size(), end));
    end = at;
  }
  parts.push_back(text.part(0, end));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Line> lines_of(const Text& text) {
  std::vector<Line> lines;
  for (std::size_t done = 0; done < text.size();) {
    const auto [end, next] = line_end(text.bytes(), done);
    lines.push_back({text.part(done, end), text.part(end, next)});
    done = next;
  }
  return lines;
}

std::vector<Text> split_lines(const Text& text) {
  std::vector<Text> texts;
  for (Line& line : lines_of(text)) texts.push_back(std::move(line.text));
  return texts;
}

Text in_case(const Text& text, Case wanted) {
  Text out = text.part(0, 0);
  const auto borders = character_borders(text.bytes());
  bool first = true;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const char32_t code = character_at(text.bytes(), borders[i], borders[i + 1]);
    const Case now = wanted == Case::upper || wanted == Case::lower ? wanted
                     : first                                        ? Case::title
                                                                    : Case::lower;
    std::string changed;
    append_utf8(changed, cased(code, now));
    out.append(changed, text, borders[i], borders[i + 1]);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
    first = wanted == Case::title && !letter;
  }
  return out;
}

Text quoted(const Text& text) {
  const std::string& bytes = text.bytes();
  const bool single = bytes.find('\'') == std::string::npos || bytes.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  Text out(std::string_view(&quote, 1), Origin::from_template);
  out.append(text.part(0, 0));
  const auto borders = character_borders(bytes);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const std::string_view each =
        std::string_view(bytes).substr(borders[i], borders[i + 1] - borders[i]);
    const bool escaped = each[0] == quote || each[0] == '\\';
    const char32_t code = code_point(each);
    const std::string shown = printable(code) ? std::string(each) : python_escape(code);
    out.append((escaped ? "\\" : "") + shown, text, borders[i], borders[i + 1]);
  }
  out.append(std::string_view(&quote, 1), Origin::from_template);
  return out;
}

Text json_quoted(const Text& text, Escapes escapes) {
  const std::string& bytes = text.bytes();
  Text out("\"", Origin::from_template);
  out.append(text.part(0, 0));
  const auto borders = character_borders(bytes);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const std::string_view each =
        std::string_view(bytes).substr(borders[i], borders[i + 1] - borders[i]);
    const char32_t code = code_point(each);
    const bool escaped = code < 0x20 || code == '"' || code == '\\' ||
                         (code > 0x7e && escapes == Escapes::all_but_ascii);
    out.append(escaped ? json_escape(code) : std::string(each), text, borders[i], borders[i + 1]);
  }
  out.append("\"", Origin::from_template);
  return out;
}

}  // namespace zero::jinja
