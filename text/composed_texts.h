// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

namespace zero {

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

  static constexpr std::size_t kMostBytes = 64;

 private:
  void add(std::string literal);

  std::deque<std::string> literals_;
  std::unordered_set<std::string_view> whole_;
  std::unordered_set<std::string_view> beginnings_;
  std::unordered_set<std::string_view> ends_;
};

}  // namespace zero
