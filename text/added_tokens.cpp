// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "text/jinja/lexer.h"
#include "text/unicode.h"

namespace zero {
namespace {

std::uint64_t edge(std::uint32_t node, unsigned char byte) {
  return std::uint64_t{node} << 8U | byte;
}

/// The first of `ranges` that ends behind `at`.
std::span<const ByteRange>::iterator range_at(std::span<const ByteRange> ranges, std::size_t at) {
  return std::ranges::partition_point(ranges,
                                      [&](const ByteRange& range) { return range.end <= at; });
}

/// Where the next range behind `at` begins or ends.
std::size_t next_border(std::span<const ByteRange> ranges, std::size_t at) {
  const auto range = range_at(ranges, at);
  if (range == ranges.end()) return std::string_view::npos;
  return range->begin > at ? range->begin : range->end;
}

bool looks_like_control(std::string_view content) {
  return content.size() > 2 && ((content.starts_with('<') && content.ends_with('>')) ||
                                (content.starts_with('[') && content.ends_with(']')));
}

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

/// The texts that the literals of a chat template may become one behind the other, with the roles
/// of messages between, as '@' + role + ':'. Whether a conversation has those roles does not count.
class ComposedTexts {
 public:
  /// None without a template.
  explicit ComposedTexts(std::string_view chat_template);

  /// Whether `text` is one of them: the end of a literal, whole ones, the beginning of one; or a
  /// role between signs, which a template may compose by other ways. A text of more than kMostBytes
  /// is taken for one without a look.
  bool contains(std::string_view text) const;

 private:
  static constexpr std::size_t kMostBytes = 64;

  void add(std::string literal);

  std::deque<std::string> literals_;
  std::unordered_set<std::string_view> whole_;
  std::unordered_set<std::string_view> beginnings_;
  std::unordered_set<std::string_view> ends_;
};

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

}  // namespace

LongestMatch::LongestMatch(const std::vector<std::string_view>& patterns) {
  states_.emplace_back();
  for (std::uint32_t i = 0; i < patterns.size(); ++i) {
    Node node = 0;
    for (std::size_t at = patterns[i].size(); at > 0; --at) {
      node = add_child(node, static_cast<unsigned char>(patterns[i][at - 1]));
    }
    states_[node].pattern = i;
  }
  std::vector<std::vector<std::pair<unsigned char, Node>>> children(states_.size());
  std::queue<Node> open;  // nodes of fewer bytes come first
  for (const auto& [key, node] : edges_) {
    children[key >> 8U].emplace_back(static_cast<unsigned char>(key & 0xffU), node);
  }
  for (const Node node : first_) {
    if (node != 0) open.push(node);
  }
  for (; !open.empty(); open.pop()) {
    const Node node = open.front();
    State& state = states_[node];
    if (state.pattern == kNone) state.pattern = states_[state.fallback].pattern;
    for (const auto& [byte, next] : children[node]) {
      states_[next].fallback = step(state.fallback, byte);
      open.push(next);
    }
  }
}

LongestMatch::Node LongestMatch::child(Node node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  const auto found = edges_.find(edge(node, byte));
  return found == edges_.end() ? 0 : found->second;
}

LongestMatch::Node LongestMatch::step(Node node, unsigned char byte) const {
  for (;; node = states_[node].fallback) {
    const Node next = child(node, byte);
    if (next != 0 || node == 0) return next;
  }
}

LongestMatch::Node LongestMatch::add_child(Node node, unsigned char byte) {
  if (const Node known = child(node, byte); known != 0) return known;
  const auto added = static_cast<Node>(states_.size());
  states_.emplace_back();
  (node == 0 ? first_[byte] : edges_[edge(node, byte)]) = added;
  return added;
}

std::vector<LongestMatch::Match> LongestMatch::find(std::string_view text) const {
  std::vector<Match> matches;
  if (states_.empty()) return matches;
  Node node = 0;
  for (std::size_t at = text.size(); at > 0; --at) {
    node = step(node, static_cast<unsigned char>(text[at - 1]));
    if (states_[node].pattern != kNone) matches.push_back({at - 1, states_[node].pattern});
  }
  return matches;
}

std::uint32_t read_token_id(const nlohmann::json& id, const std::string& place) {
  ZERO_CHECK(id.is_number_unsigned() && id.get<std::uint64_t>() < kMostTokens,
             "{}: found {}, expected an id below {}", place, id.dump(), kMostTokens);
  return id.get<std::uint32_t>();
}

AddedToken read_added_token(JsonFields& fields, std::uint32_t id) {
  AddedToken token{.content = fields.text("content"),
                   .id = id,
                   .special = fields.flag("special", false),
                   .left_space = fields.flag("lstrip", false),
                   .right_space = fields.flag("rstrip", false),
                   .single_word = fields.flag("single_word", false)};
  token.normalized = fields.flag("normalized", !token.special);
  return token;
}

bool within(std::span<const ByteRange> ranges, std::size_t begin, std::size_t end) {
  const auto range = range_at(ranges, begin);
  return range != ranges.end() && range->begin <= begin && end <= range->end;
}

void guard_tokens(std::vector<AddedToken>& tokens, std::string_view chat_template,
                  std::span<const std::string> names) {
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_content;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    AddedToken& token = tokens[i];
    const std::string_view words = trimmed(token.content);
    token.guarded = token.special || looks_like_control(words);
    if (!words.empty()) by_content[token.content].push_back(i);
  }
  const auto guard = [&](std::string_view content) {
    const auto found = by_content.find(content);
    if (found == by_content.end()) return;
    for (const std::size_t i : found->second) tokens[i].guarded = true;
  };
  std::vector<std::string_view> contents;
  for (const auto& [content, places] : by_content) contents.push_back(content);
  const LongestMatch all(contents);
  for (const std::string& text : jinja::literal_texts(chat_template)) {
    for (const auto& match : all.find(text)) guard(contents[match.pattern]);
  }
  for (const std::string& name : names) guard(name);
  const ComposedTexts composed(chat_template);
  for (const auto& [content, places] : by_content) {
    if (!tokens[places[0]].guarded && composed.contains(content)) guard(content);
  }
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::string& place) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  std::size_t bytes = 0;
  for (const AddedToken& token : tokens) bytes += token.content.size();
  ZERO_CHECK(bytes <= kMostBytes, "{}: the tokens have {} bytes together, expected at most {}",
             place, bytes, kMostBytes);
  std::unordered_map<std::string, std::size_t> places;
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto [known, is_new] = places.try_emplace(token.content, tokens_.size());
    if (is_new) {
      tokens_.push_back(std::move(token));
    } else {
      tokens_[known->second] = std::move(token);
    }
  }
  std::vector<std::string_view> contents;
  for (const AddedToken& token : tokens_) contents.emplace_back(token.content);
  contents_ = LongestMatch(contents);
  const bool prepends =
      std::ranges::any_of(tokens_, [](const AddedToken& token) { return token.prepended > 0; });
  if (!prepends) return;
  for (std::size_t i = 0; i < tokens_.size(); ++i) contents[i].remove_prefix(tokens_[i].prepended);
  bare_ = LongestMatch(contents);
}

void AddedTokens::add_contained(std::string_view text, std::set<std::uint32_t>& ids) const {
  const bool prepends = !tokens_.empty() && tokens_[0].prepended > 0;
  for (const LongestMatch::Match& match : (prepends ? bare_ : contents_).find(text)) {
    const AddedToken& token = tokens_[match.pattern];
    if (!trimmed(token.content).empty()) ids.insert(token.id);
  }
}

std::vector<TextPart> AddedTokens::split(std::string_view text, const TokenPlaces& places,
                                         const std::set<std::uint32_t>& written) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;  // bytes of `text` in `parts`
  std::size_t at = 0;    // where the next token may begin
  const std::vector<LongestMatch::Match> matches = contents_.find(text);
  for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
    if (match->begin < at) continue;
    const AddedToken& token = tokens_[match->pattern];
    std::size_t begin = match->begin;
    std::size_t end = at = begin + token.content.size();
    const bool guarded = places.guards && (token.guarded || written.contains(token.id));
    const bool is_bound = token.special || guarded;
    if (is_bound && !within(places.ranges, begin + token.prepended, end)) {
      at = std::min(end, next_border(places.ranges, begin));
      continue;
    }
    const bool in_word =
        ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end));
    if (token.single_word && in_word) continue;
    if (token.left_space) begin -= trailing_space(text.substr(done, begin - done));
    if (token.right_space) end += leading_space(text.substr(end));
    if (begin > done) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({text.substr(begin, end - begin), token.id});
    done = at = std::max(at, end);
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace zero
