// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// A regular expression that cuts text into words, compiled by PCRE2. It means what it means to
/// Oniguruma, which transformers' tokenizers use; a pattern whose meaning could differ is refused.
/// Letters and digits are those of PCRE2's Unicode version.
class SplitPattern {
 public:
  enum class Keep : std::uint8_t { all, matches, gaps };

  /// `place` ("FILE: field") is for messages. Throws zero::Error if `pattern` is refused.
  SplitPattern(const std::string& pattern, Keep keep, std::string place);

  Keep keep() const { return keep_; }
  /// Appends the matches in `text`, which is UTF-8, and the gaps between them to `words`, or what
  /// is kept of both. Throws zero::Error, naming the pattern, if it takes more steps than a text of
  /// that length is allowed, so that no pattern takes more than proportional time, or more memory.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  class Matcher;

  std::shared_ptr<const void> code_;  // pcre2_code
  Keep keep_;
  std::string pattern_;
  std::string place_;
};

}  // namespace zero
