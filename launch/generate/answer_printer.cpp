// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_printer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/message_text.h"
#include "launch/telemetry/output.h"

namespace zero {

std::string encoded(const std::vector<AnswerUpdate>& updates) {
  if (updates.empty()) return {};
  auto all = nlohmann::json::array();
  for (const AnswerUpdate& each : updates) {
    nlohmann::json one{each.answer, each.text};
    if (each.end) {
      one.push_back({each.end->reason, each.end->error, each.end->json, each.end->tokens,
                     each.end->first_token});
    }
    all.push_back(std::move(one));
  }
  std::string bytes;
  nlohmann::json::to_cbor(all, bytes);
  return bytes;
}

std::vector<AnswerUpdate> decoded_updates(std::string_view bytes) {
  std::vector<AnswerUpdate> updates;
  if (bytes.empty()) return updates;
  for (const nlohmann::json& each : nlohmann::json::from_cbor(bytes)) {
    AnswerUpdate update{.answer = each.at(0), .text = each.at(1)};
    if (each.size() > 2) {
      const nlohmann::json& end = each.at(2);
      update.end = AnswerUpdate::End{end.at(0), end.at(1), end.at(2), end.at(3), end.at(4)};
    }
    updates.push_back(std::move(update));
  }
  return updates;
}

void AnswerPrinter::begin(std::size_t answers) {
  shown_.assign(answers, {});
  next_ = 0;
  failures_.clear();
}

void AnswerPrinter::apply(const std::vector<AnswerUpdate>& updates) {
  for (const AnswerUpdate& update : updates) {
    shown_.at(update.answer).text += update.text;
    if (update.end) end(update.answer, *update.end);
  }
  if (form_ == Form::text) print_in_order();
}

void AnswerPrinter::end(std::size_t answer, const AnswerUpdate::End& end) {
  shown_[answer].ended = true;
  shown_[answer].tokens = end.tokens;
  const bool failed = end.reason == FinishReason::failed;
  if (failed) failures_.emplace_back(answer, end.error);
  if (form_ == Form::json && (failed || end.tokens > 0)) print(end.json + "\n");
  if (end.tokens == 0) return;
  totals_.first_token =
      totals_.answers == 0 ? end.first_token : std::min(totals_.first_token, end.first_token);
  ++totals_.answers;
  totals_.tokens += end.tokens;
}

// An answer whose turn it is, as it comes; the others wait.
void AnswerPrinter::print_in_order() {
  for (; next_ < shown_.size(); ++next_) {
    Shown& answer = shown_[next_];
    const std::string text = std::exchange(answer.text, "");
    print(on_terminal() ? printable_text(text) : text);
    if (!answer.ended) return;
    if (answer.tokens > 0) print("\n");
  }
}

}  // namespace zero
