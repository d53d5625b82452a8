// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "base/sign_of_life.h"
#include "base/utf8.h"

namespace zero {
namespace {

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Translates a pattern for Oniguruma into one for PCRE2, where it means the same.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& place)
      : pattern_(pattern), place_(place) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
        continue;
      }
      if (in_class_) {
        if (c == '[' || rest().starts_with("&&")) refuse("a set in a class");
        in_class_ = c != ']';
      } else if (c == '(') {
        const bool plain = !rest().starts_with("(?") && !rest().starts_with("(*");
        const bool known = plain || rest().starts_with("(?:") || rest().starts_with("(?i:") ||
                           rest().starts_with("(?=") || rest().starts_with("(?!");
        if (!known) refuse("a group other than (...), (?:...), (?i:...), (?=...) and (?!...)");
      } else if (rest().starts_with("{,") || rest().starts_with("}+") || rest().starts_with("}?")) {
        refuse("a count without a first number, or followed by + or ?");
      } else {
        in_class_ = c == '[';
      }
      out_ += c;
      ++at_;
    }
    return out_;
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }

  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: found {} at byte {} of {}, which libraries of regular expressions read differently",
         place_, what, at_, pattern_);
  }

  void escape() {
    const char c = rest().size() > 1 ? rest()[1] : '\0';
    if (c == 'p' || c == 'P') return property();
    if (c == 's' || c == 'S') {  // PCRE2's has U+180E, which is no white space
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else if (std::ispunct(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("rntdD").find(c) != std::string_view::npos) {
      out_ += rest().substr(0, 2);
    } else {
      refuse("an escape other than \\p, \\P, \\s, \\S, \\d, \\D, \\r, \\n, \\t and punctuation");
    }
    at_ += 2;
  }

  /// A general category, or a script: PCRE2 would add other scripts' characters in use with it.
  void property() {
    const std::size_t end = rest().find('}');
    if (rest().substr(2, 1) != "{" || end == std::string_view::npos) refuse("\\p without braces");
    const std::string_view name = rest().substr(3, end - 3);
    const bool letters = !name.empty() && std::ranges::all_of(name, [](char c) {
      return std::isalpha(static_cast<unsigned char>(c)) != 0;
    });
    if (!letters) refuse("a property that is no category and no script");
    out_ += fmt::format("\\{}{{{}{}}}", rest()[1], name.size() > 2 ? "sc:" : "", name);
    at_ += end + 1;
  }

  std::string_view pattern_;
  const std::string& place_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::shared_ptr<const void> compile(const std::string& pattern, const std::string& place) {
  constexpr std::size_t kLongest = 10000;
  ZERO_CHECK(pattern.size() <= kLongest && !pattern.empty(),
             "{}: has {} bytes, expected 1 to {} bytes", place, pattern.size(), kLongest);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::string text = Translation(pattern, place).run();
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE,
                                   &error, &offset, context.get());
  ZERO_CHECK(code != nullptr, "{}: is no pattern: {}: {}", place, message_of(error), pattern);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it pcre2_match is slower
  return {code, [](const void* object) {
            pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(object)));
          }};
}

}  // namespace

SplitPattern::SplitPattern(const std::string& pattern, Keep keep, std::string place)
    : code_(compile(pattern, place)), keep_(keep), pattern_(pattern), place_(std::move(place)) {}

/// Finds matches in one text. What matches cost together is bounded by the text's length: a match
/// is tried with few steps of backtracking, and with more only as long as the text has some left.
class SplitPattern::Matcher {
 public:
  Matcher(const SplitPattern& pattern, std::string_view text)
      : pattern_(pattern), text_(text), steps_(kStepsOfText + kStepsOfByte * text.size()) {
    pcre2_set_heap_limit(context_.get(), 65536);  // KiB
  }

  /// The bytes of the first match at or behind `at`; null if there is none.
  const PCRE2_SIZE* match(std::size_t at) {
    int found = run(at, kStepsOfMatch, 0);
    if (found == PCRE2_ERROR_MATCHLIMIT) found = search(at);
    if (found == PCRE2_ERROR_NOMATCH) return nullptr;
    ZERO_CHECK(found > 0,
               "{}: the pattern {} goes back and forth too often in {} bytes of text: {}; give a "
               "tokenizer whose pattern looks at a byte a few times",
               pattern_.place_, printable_line(pattern_.pattern_), text_.size(), message_of(found));
    return pcre2_get_ovector_pointer(data_.get());
  }

 private:
  static constexpr std::uint32_t kStepsOfMatch = 256;          // that each place is allowed
  static constexpr std::uint32_t kRunsBetweenSigns = 1 << 16;  // some milliseconds
  static constexpr std::uint32_t kMostSteps = 1U << 29U;
  static constexpr std::size_t kStepsOfText = 4096;
  static constexpr std::size_t kStepsOfByte = 32;  // a run of white space takes three

  const pcre2_code* code() const { return static_cast<const pcre2_code*>(pattern_.code_.get()); }

  /// PCRE2's limit of steps is that of each place where a match may begin.
  int run(std::size_t at, std::uint32_t steps, std::uint32_t options) {
    if (++runs_ % kRunsBetweenSigns == 0) give_sign_of_life();
    pcre2_set_match_limit(context_.get(), steps);
    return pcre2_match(code(), reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at,
                       PCRE2_NO_UTF_CHECK | options, data_.get(), context_.get());
  }

  /// Tries one place after the other.
  int search(std::size_t at) {
    for (;;) {
      const int found = try_at(at);
      if (found != PCRE2_ERROR_NOMATCH || at == text_.size()) return found;
      at += utf8_start(text_.substr(at)).bytes;
    }
  }

  int try_at(std::size_t at) {
    for (std::uint32_t steps = kStepsOfMatch;; steps *= 8) {
      const int found = run(at, steps, PCRE2_ANCHORED);
      const bool more = steps < kMostSteps && found == PCRE2_ERROR_MATCHLIMIT && spend(steps);
      if (!more) return found;
    }
  }

  bool spend(std::size_t steps) {
    if (steps > steps_) return false;
    steps_ -= steps;
    return true;
  }

  const SplitPattern& pattern_;
  std::string_view text_;
  std::size_t steps_;  // that the text has left
  std::uint32_t runs_ = 0;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_{
      pcre2_match_data_create_from_pattern(code(), nullptr), pcre2_match_data_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context_{
      pcre2_match_context_create(nullptr), pcre2_match_context_free};
};

void SplitPattern::split(std::string_view text, std::vector<std::string_view>& words) const {
  Matcher matcher(*this, text);
  const auto put = [&](std::size_t begin, std::size_t end, Keep part) {
    if (end > begin && keep_ != part) words.push_back(text.substr(begin, end - begin));
  };
  std::size_t done = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const PCRE2_SIZE* bounds = matcher.match(at);
    if (bounds == nullptr) break;
    put(done, bounds[0], Keep::matches);
    put(bounds[0], bounds[1], Keep::gaps);
    done = at = bounds[1];
    if (bounds[0] == bounds[1]) {  // an empty match: the next begins a character later
      at += at < text.size() ? utf8_start(text.substr(at)).bytes : 1;
    }
  }
  put(done, text.size(), Keep::matches);
}

}  // namespace zero
