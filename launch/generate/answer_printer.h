// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inference/generation_request.h"

namespace zero {

/// What has become of an answer since the last update.
struct AnswerUpdate {
  struct End {
    FinishReason reason = FinishReason::length;
    std::string error{};
    std::string json{};  ///< of the whole answer
    std::int64_t tokens = 0;
    double first_token = 0;  ///< seconds
  };
  std::size_t answer = 0;  ///< its number among those of begin()
  std::string text{};
  std::optional<End> end{};
};

/// Updates in bytes, for the first rank of the same program, and back.
std::string encoded(const std::vector<AnswerUpdate>& updates);
std::vector<AnswerUpdate> decoded_updates(std::string_view bytes);

/// Prints answers on standard output and counts them: as texts, in the order of their prompts and
/// as they come, or as lines of JSON, in the order in which they end.
class AnswerPrinter {
 public:
  enum class Form : std::uint8_t { text, json };
  explicit AnswerPrinter(Form form) : form_(form) {}

  /// Other answers come from here on.
  void begin(std::size_t answers);
  void apply(const std::vector<AnswerUpdate>& updates);
  /// The errors of answers that failed, by number, since begin().
  const std::vector<std::pair<std::size_t, std::string>>& failures() const { return failures_; }

  /// Of all that have ended.
  struct Totals {
    std::int64_t answers = 0;  ///< with a token at least
    std::int64_t tokens = 0;
    double first_token = 0;  ///< seconds: the earliest
  };
  const Totals& totals() const { return totals_; }
  /// Of the answers since begin(), those with a token at least.
  bool answered(std::size_t answer) const { return shown_[answer].tokens > 0; }

 private:
  struct Shown {
    std::string text{};  // not printed yet
    std::int64_t tokens = 0;
    bool ended = false;
  };
  void end(std::size_t answer, const AnswerUpdate::End& end);
  void print_in_order();

  Form form_;
  std::vector<Shown> shown_;
  std::size_t next_ = 0;  // the first that is not printed whole
  std::vector<std::pair<std::size_t, std::string>> failures_;
  Totals totals_;
};

}  // namespace zero
