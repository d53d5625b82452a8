// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace zero {
namespace {

/// By FinishReason.
constexpr std::array<std::string_view, 5> kReasons{"length", "end_token", "stop", "cancelled",
                                                   "failed"};
static_assert(std::size_t(FinishReason::failed) + 1 == kReasons.size());

}  // namespace

Answer::Answer(const About& about)
    : number_(about.number), prompt_tokens_(std::ssize(about.prompt)), stops_(about.stop) {
  if (about.shows_prompt) shown_prompt_ = about.prompt;
  if (about.tokenizer != nullptr) stream_.emplace(*about.tokenizer, about.prompt);
}

void Answer::append(const std::string& text) {
  text_ += text;
  shown_next_ += text;
}

Flow Answer::push(const GeneratedToken& token) {
  if (!stream_) append(fmt::format("{}{}", ids_.empty() ? "" : " ", token.id));
  ids_.push_back(token.id);
  log_probabilities_.push_back(token.log_probability);
  if (!stream_) return Flow::more;
  append(stops_.push(stream_->push(token.id)));
  return stops_.stopped() ? Flow::stop : Flow::more;
}

void Answer::end(const GenerationEnd& end) {
  if (stream_ && !stops_.stopped()) {
    append(stops_.push(stream_->finish()));
    append(stops_.finish());
  }
  ended_ = end;
}

std::string Answer::json(LogProbabilities log_probabilities) const {
  nlohmann::ordered_json line{{"ids", ids_}};
  if (stream_) line["text"] = text_;
  if (log_probabilities == LogProbabilities::shown) line["log_probabilities"] = log_probabilities_;
  line["reason"] = kReasons.at(static_cast<std::size_t>(ended_->reason));
  if (!ended_->error.empty()) line["error"] = ended_->error;
  line["seconds"] = ended_->total;
  line["first_token_seconds"] = ended_->first_token;
  line["prompt_tokens"] = prompt_tokens_;
  if (!shown_prompt_.empty()) line["prompt_ids"] = shown_prompt_;
  line["line"] = number_;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace zero
