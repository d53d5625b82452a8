// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_fields.h"
#include "text/tokenizer.h"

namespace zero {

/// Finds at each place of a text the longest of some patterns that begins there: an automaton of
/// Aho and Corasick over the patterns read backwards, which is run over the text from its end.
/// Takes time in proportion to the bytes of the patterns to build, and of the text to run.
class LongestMatch {
 public:
  struct Match {
    std::size_t begin;
    std::uint32_t pattern;  ///< its index
  };

  LongestMatch() = default;
  /// Patterns are not empty, and differ.
  explicit LongestMatch(const std::vector<std::string_view>& patterns);

  /// The longest match at each place that has one, the last place first.
  std::vector<Match> find(std::string_view text) const;

 private:
  using Node = std::uint32_t;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct State {
    Node fallback = 0;              ///< of the longest end of the node's bytes that is a node's
    std::uint32_t pattern = kNone;  ///< the longest that ends the node's bytes
  };

  Node child(Node node, unsigned char byte) const;
  Node step(Node node, unsigned char byte) const;
  Node add_child(Node node, unsigned char byte);

  std::vector<State> states_;
  std::array<Node, 256> first_{};                  ///< the root's children; 0: none
  std::unordered_map<std::uint64_t, Node> edges_;  ///< the others', by node and byte
};

/// Ids of tokens are below: a file that names a larger one is refused.
inline constexpr std::uint32_t kMostTokens = 1U << 20U;
/// The id in a file's JSON. Throws zero::Error naming `place`, found and expected.
std::uint32_t read_token_id(const nlohmann::json& id, const std::string& place);

/// A token that is found in the text before pre-tokenization.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool special = false;
  bool guarded = false;       ///< messages of a chat cannot write it: guard_tokens()
  bool normalized = false;    ///< found in the normalized text
  bool left_space = false;    ///< takes white space before it along
  bool right_space = false;   ///< takes white space behind it along
  bool single_word = false;   ///< not within a word
  std::size_t prepended = 0;  ///< bytes of the content that a normalizer put before it
};

/// Reads content, special, normalized, lstrip, rstrip and single_word.
AddedToken read_added_token(JsonFields& fields, std::uint32_t id);

/// Roles that a template may make tokens of, as "<|" + role + "|>"; other roles are content.
inline constexpr std::array<std::string_view, 8> kChatRoles{
    "system", "user", "assistant", "tool", "developer", "function", "model", "ipython"};

/// Marks as guarded what may steer a chat, whatever a file marks as special: what looks like a
/// control token ("<...>", "[...]"), and what a literal of `chat_template` or one of `names`, such
/// as an eos_token, writes, or literals and roles one behind the other; not white space. What a
/// template composes otherwise, as with filters, is guarded where it does: AddedTokens::split().
/// Takes time in proportion to the texts.
void guard_tokens(std::vector<AddedToken>& tokens, std::string_view chat_template,
                  std::span<const std::string> names);

/// Whether one of `ranges`, which are in order and apart, has all bytes from `begin` to `end`.
bool within(std::span<const ByteRange> ranges, std::size_t begin, std::size_t end);

/// A part of a text: an added token, or text between.
struct TextPart {
  std::string_view text;
  std::optional<std::uint32_t> token{};
};

/// Finds the longest of some added tokens at each place, from left to right.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Of tokens with the same content, the last counts. Throws zero::Error beginning with `place`
  /// if their contents are too long together.
  AddedTokens(std::vector<AddedToken> tokens, const std::string& place);

  bool empty() const { return tokens_.empty(); }

  /// Cuts `text`, which is UTF-8. Tokens that may not act where they stand stay text; those with
  /// the ids `written` are guarded too.
  std::vector<TextPart> split(std::string_view text, const TokenPlaces& places,
                              const std::set<std::uint32_t>& written = {}) const;

  /// Adds the ids of the tokens that `text` contains, also where split() leaves them text; not
  /// white space.
  void add_contained(std::string_view text, std::set<std::uint32_t>& ids) const;

 private:
  std::vector<AddedToken> tokens_;
  LongestMatch contents_;
  LongestMatch bare_;  // contents without what is prepended, if something is
};

}  // namespace zero
