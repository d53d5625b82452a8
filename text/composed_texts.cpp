// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/composed_texts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/chat_roles.h"
#include "text/jinja/lexer.h"

namespace zero {
namespace {

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
bool is_letter(char c) { return upper(c) >= 'A' && upper(c) <= 'Z'; }

/// Whether `text` is the name of a role between signs, as "@User:", whatever composes it.
bool names_role(std::string_view text) {
  const auto begin = std::ranges::find_if(text, is_letter);
  const auto end = std::ranges::find_if(text.rbegin(), text.rend(), is_letter).base();
  const std::string_view word(begin, std::max(begin, end));
  return std::ranges::any_of(kChatRoles, [&](std::string_view role) {
    return std::ranges::equal(word, role, {}, upper, upper);
  });
}

}  // namespace

ComposedTexts::ComposedTexts(std::string_view chat_template) {
  if (chat_template.empty()) return;
  for (std::string& literal : jinja::literal_texts(chat_template)) add(std::move(literal));
  for (const std::string_view role : kChatRoles) {
    std::string changed(role);
    add(changed);
    changed[0] = upper(changed[0]);
    add(changed);
    std::ranges::transform(changed, changed.begin(), upper);
    add(changed);
  }
}

void ComposedTexts::add(std::string literal) {
  if (literal.empty()) return;
  const std::string_view text = literals_.emplace_back(std::move(literal));
  if (text.size() <= kMostBytes && !whole_.insert(text).second) return;
  for (std::size_t bytes = 1; bytes <= std::min(text.size(), kMostBytes); ++bytes) {
    beginnings_.insert(text.substr(0, bytes));
    ends_.insert(text.substr(text.size() - bytes));
  }
}

bool ComposedTexts::contains(std::string_view text) const {
  if (literals_.empty() || text.empty()) return false;
  if (text.size() > kMostBytes || names_role(text)) return true;
  std::array<bool, kMostBytes> literal_begins{true};  // whether one may begin there
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && ends_.contains(text.substr(0, at))) literal_begins[at] = true;
    if (!literal_begins[at]) continue;
    for (std::size_t end = at + 1; end <= text.size(); ++end) {
      const std::string_view part = text.substr(at, end - at);
      if (!beginnings_.contains(part)) break;
      if (end == text.size()) return true;
      if (whole_.contains(part)) literal_begins[end] = true;
    }
  }
  return ends_.contains(text);
}

}  // namespace zero
