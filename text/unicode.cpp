// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace zero {
namespace {

std::string_view first_character(std::string_view text) {
  return text.substr(0, utf8_start(text).bytes);
}

std::string_view last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U) --at;
  return text.substr(at);
}

bool is_space(std::string_view character) {
  const char32_t code = code_point(character);
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return (code >= 9 && code <= 13) || code == 0x85 ||
         (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

bool is_word(std::string_view character) {
  const char32_t code = code_point(character);
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const bool joiner = code == 0x200c || code == 0x200d;
  return joiner || category == UTF8PROC_CATEGORY_PC ||
         (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL);
}

int combining_class(std::string_view character) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point(character)))
      ->combining_class;
}

/// Combining marks of each run in canonical order, which changes no normal form. The library orders
/// a run in quadratic time if it is not.
std::string with_ordered_marks(std::string_view text) {
  std::string ordered;
  std::vector<std::pair<int, std::string_view>> run;  // combining class, mark
  const auto flush = [&] {
    std::ranges::stable_sort(run, {}, &std::pair<int, std::string_view>::first);
    for (const auto& [order, mark] : run) ordered.append(mark);
    run.clear();
  };
  while (!text.empty()) {
    const Utf8Start start = utf8_start(text);
    const std::string_view character = text.substr(0, start.bytes);
    text.remove_prefix(character.size());
    const int order = start.kind == Utf8Start::Kind::character ? combining_class(character) : 0;
    if (order > 0) {
      run.emplace_back(order, character);
      continue;
    }
    flush();
    ordered.append(character);
  }
  flush();
  return ordered;
}

}  // namespace

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(first_character(text));
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(last_character(text));
}

std::size_t leading_space(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size() && is_space(first_character(text.substr(bytes)))) {
    bytes += first_character(text.substr(bytes)).size();
  }
  return bytes;
}

std::size_t trailing_space(std::string_view text) {
  const std::size_t all = text.size();
  while (!text.empty() && is_space(last_character(text))) {
    text.remove_suffix(last_character(text).size());
  }
  return all - text.size();
}

std::size_t bytes_of_space(std::string_view text) {
  std::size_t bytes = 0;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    if (is_space(character)) bytes += character.size();
    text.remove_prefix(character.size());
  }
  return bytes;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  return text;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string composed(std::string_view text) {
  const bool ascii =
      std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return std::string(text);
  utf8proc_uint8_t* out = nullptr;
  const std::string ordered = with_ordered_marks(text);
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(ordered.data()),
                   static_cast<utf8proc_ssize_t>(ordered.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(out, std::free);
  ZERO_CHECK(bytes >= 0, "{} bytes of text cannot be normalized: {}", text.size(),
             utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(bytes)};
}

}  // namespace zero
