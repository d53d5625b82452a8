// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/added_tokens.h"

#include <algorithm>

#include "inference/text/unicode.h"

namespace zero {
namespace {

bool within(std::span<const ByteRange> ranges, std::size_t begin, std::size_t end) {
  return std::ranges::any_of(
      ranges, [&](const ByteRange& range) { return range.begin <= begin && end <= range.end; });
}

/// Where the next range behind `at` begins or ends.
std::size_t next_border(std::span<const ByteRange> ranges, std::size_t at) {
  for (const ByteRange& range : ranges) {
    if (range.begin > at) return range.begin;
    if (range.end > at) return range.end;
  }
  return std::string_view::npos;
}

}  // namespace

AddedToken read_added_token(HfFields& fields, std::uint32_t id) {
  AddedToken token{.content = fields.text("content"),
                   .id = id,
                   .special = fields.flag("special", false),
                   .left_space = fields.flag("lstrip", false),
                   .right_space = fields.flag("rstrip", false),
                   .single_word = fields.flag("single_word", false)};
  token.normalized = fields.flag("normalized", !token.special);
  return token;
}

void AddedTokens::add(const AddedToken& token) {
  if (token.content.empty()) return;
  tokens_[token.content] = token;
  lengths_[token.content[0]].insert(token.content.size());
}

const AddedToken* AddedTokens::match(std::string_view text) const {
  const auto lengths = lengths_.find(text[0]);
  if (lengths == lengths_.end()) return nullptr;
  for (const std::size_t length : lengths->second) {
    if (length > text.size()) continue;
    const auto found = tokens_.find(std::string(text.substr(0, length)));
    if (found != tokens_.end()) return &found->second;
  }
  return nullptr;
}

std::vector<TextPart> AddedTokens::split(std::string_view text,
                                         std::span<const ByteRange> special) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;  // bytes of `text` in `parts`
  for (std::size_t at = 0; !empty() && at < text.size();) {
    const AddedToken* token = match(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at += token->content.size();
    if (token->special && !within(special, begin, end)) {
      at = std::min(end, next_border(special, begin));
      continue;
    }
    const bool in_word =
        ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end));
    if (token->single_word && in_word) continue;
    if (token->left_space) begin -= trailing_space(text.substr(done, begin - done));
    if (token->right_space) end += leading_space(text.substr(end));
    if (begin > done) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = at = std::max(at, end);
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace zero
