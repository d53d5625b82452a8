// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/prompt_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/message_text.h"
#include "base/utf8.h"
#include "text/chat_template.h"
#include "weights/hf/config.h"
#include "weights/text_file.h"

namespace zero {

namespace fs = std::filesystem;

namespace {

void check_utf8(std::string_view text, const std::string& where) {
  if (const auto offset = first_invalid_utf8(text)) {
    fail("{}: byte {} of the prompt is not UTF-8; expected a text in UTF-8", where, *offset);
  }
}

/// Adds the texts and names in `values`, and a letter for any other value to `others`.
void add_texts(const nlohmann::json& values, std::vector<std::string_view>& texts,
               std::string& others) {
  if (values.is_object()) {
    for (auto at = values.begin(); at != values.end(); ++at) {
      texts.emplace_back(at.key());
      add_texts(*at, texts, others);
    }
  } else if (values.is_array()) {
    for (const nlohmann::json& value : values) add_texts(value, texts, others);
  } else if (values.is_string()) {
    texts.emplace_back(values.get_ref<const std::string&>());
  } else {
    others += 'v';
  }
}

/// What `encode` returns; what it throws names the prompt.
template <typename Encode>
Prompt::Ids named(const std::string& where, const Encode& encode) {
  try {
    return encode();
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
}

}  // namespace

PromptEncoder::PromptEncoder(const std::string& folder, const std::string& tokenizer)
    : folder_(folder) {
  const std::time_t now = std::time(nullptr);
  ::localtime_r(&now, &now_);
  const DecoderShape shape = read_hf_model(folder).shape;
  vocabulary_ = shape.vocabulary;
  context_ = shape.context;
  const auto has = [&](const char* name) { return fs::exists(fs::path(folder) / name); };
  const std::string& name = tokenizer.empty() ? folder : tokenizer;
  if (!tokenizer.empty() || has("tokenizer.json") || has("tokenizer.model")) {
    config_ = read_tokenizer_config(name == "bytes" ? folder : tokenizer_folder(name));
    tokenizer_ = make_tokenizer(name, config_);
  }
  end_tokens_ = read_end_tokens(folder);
  if (end_tokens_.empty() && tokenizer_ && tokenizer_->end_of_document() >= 0) {
    end_tokens_ = {static_cast<std::uint32_t>(tokenizer_->end_of_document())};
  }
}

void PromptEncoder::limit_context(std::int64_t tokens) {
  if (tokens >= context_) return;
  context_ = tokens;
  context_name_ = "--context";
}

const Tokenizer& PromptEncoder::needed_tokenizer(const std::string& where) const {
  ZERO_CHECK(tokenizer_ != nullptr,
             "{}: is text, and {} has no tokenizer.json and no tokenizer.model; give token ids "
             "with --prompt-ids, or --tokenizer with \"bytes\", a file or a folder",
             where, folder_);
  return *tokenizer_;
}

Prompt::Ids PromptEncoder::encode(const Prompt& prompt) const {
  const auto* const messages = std::get_if<Prompt::Messages>(&prompt.content);
  ZERO_CHECK(messages != nullptr || prompt.settings.template_values.is_null(),
             "{}: chat_template_kwargs is for a chat template; expected it beside messages, or "
             "beside a prompt with --chat",
             prompt.where);
  Prompt::Ids ids;
  if (const auto* given = std::get_if<Prompt::Ids>(&prompt.content)) {
    ids = *given;
  } else if (messages != nullptr) {
    ids = encode(*messages, prompt);
  } else {
    ids = encode(std::get<std::string>(prompt.content), prompt);
  }
  ZERO_CHECK(!ids.empty(), "{}: the prompt has no token{}; expected one at least", prompt.where,
             messages != nullptr ? ": the chat template makes nothing of these messages" : "");
  return ids;
}

Prompt::Ids PromptEncoder::encode(const Prompt::Messages& messages, const Prompt& prompt) const {
  const std::string& where = prompt.where;
  const Tokenizer& tokenizer = needed_tokenizer(where);
  std::vector<std::string_view> contents;
  for (const ChatMessage& message : messages) {
    check_utf8(message.content, where);
    contents.emplace_back(message.content);
    contents.insert(contents.end(), message.parts.begin(), message.parts.end());
  }
  std::string others;
  const nlohmann::json& values = prompt.settings.template_values;
  if (!values.is_null()) add_texts(values, contents, others);
  contents.emplace_back(others);
  check_size(contents, where);
  return named(
      where, [&] { return tokenizer.encode_pieces(render_chat(config_, messages, now_, values)); });
}

Prompt::Ids PromptEncoder::encode(const std::string& text, const Prompt& prompt) const {
  const Tokenizer& tokenizer = needed_tokenizer(prompt.where);
  ZERO_CHECK(!text.empty(), "{}: the prompt is empty; expected one character at least",
             prompt.where);
  check_utf8(text, prompt.where);
  check_size(std::array{std::string_view(text)}, prompt.where);
  return named(prompt.where, [&] {
    return prompt.settings.special ? tokenizer.encode_pieces(std::array{PromptPiece{text, true}})
                                   : tokenizer.encode(text, {.begin_of_text = true});
  });
}

void PromptEncoder::check_size(std::span<const std::string_view> pieces,
                               const std::string& where) const {
  const std::size_t of_token = tokenizer_->most_bytes_of_token();
  const auto most = of_token == 0 ? static_cast<std::size_t>(kLargestText)
                                  : of_token * static_cast<std::size_t>(context_);
  std::size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  if (bytes <= most) return;
  ZERO_CHECK(of_token != 0, "{}: the prompt has {} bytes, expected at most {}; give a shorter one",
             where, bytes, most);
  bytes = 0;
  for (const std::string_view piece : pieces) bytes += tokenizer_->bytes_of_tokens(piece);
  ZERO_CHECK(bytes <= most,
             "{}: the prompt has {} bytes, of which a token covers {} at most, and so more than {} "
             "tokens, {}; give a shorter prompt",
             where, bytes, of_token, context_, context_name_);
}

std::vector<std::uint32_t> PromptEncoder::encode_file(const std::string& path) const {
  const Tokenizer& tokenizer = needed_tokenizer(path);
  const std::string text = read_text(files::disk(), path);
  if (const auto offset = first_invalid_utf8(text)) {
    fail("{}: byte {} is not UTF-8; expected a text in UTF-8", path, *offset);
  }
  std::vector<std::uint32_t> ids = tokenizer.encode(text, {.begin_of_text = true});
  for (const std::uint32_t id : ids) {
    ZERO_CHECK(std::int64_t{id} < vocabulary_, "{}: has token {}; expected 0 to {}, the model's",
               path, id, vocabulary_ - 1);
  }
  return ids;
}

GenerationRequest PromptEncoder::request(const Prompt& prompt) const {
  validate(prompt.settings, prompt.where);
  ZERO_CHECK(prompt.settings.stop.empty() || tokenizer_ != nullptr,
             "{}: has a stop string, which is text, and {} has no tokenizer.json and no "
             "tokenizer.model; leave it out, or give --tokenizer",
             prompt.where, folder_);
  GenerationRequest request{.prompt = encode(prompt),
                            .max_tokens = prompt.settings.max_tokens,
                            .sampling = prompt.settings.sampling,
                            .end_tokens = end_tokens_,
                            .priority = prompt.settings.priority};
  if (std::holds_alternative<Prompt::Messages>(prompt.content) && passes_end(request)) {
    request.end_tokens.push_back(static_cast<std::uint32_t>(tokenizer_->end_of_document()));
  }
  for (const std::string& stop : prompt.settings.stop) {  // special tokens add no text
    if (const auto token = tokenizer_->special_token(stop)) request.end_tokens.push_back(*token);
  }
  const auto outside = std::ranges::find_if(
      request.prompt, [&](std::uint32_t id) { return std::int64_t{id} >= vocabulary_; });
  ZERO_CHECK(outside == request.prompt.end(),
             "{}: the prompt has token {}; expected 0 to {}, the model's vocabulary", prompt.where,
             *outside, vocabulary_ - 1);
  const std::int64_t room = context_ - std::ssize(request.prompt);
  ZERO_CHECK(room >= std::max<std::int64_t>(request.max_tokens, 1),
             "{}: the prompt has {} tokens, and {} may follow; expected at most {} together, "
             "{}; give a shorter prompt or fewer --max-tokens",
             prompt.where, request.prompt.size(), std::max<std::int64_t>(request.max_tokens, 1),
             context_, context_name_);
  if (request.max_tokens == 0) {
    request.max_tokens = std::min(prompt.settings.usual_tokens, room);
  }
  return request;
}

bool PromptEncoder::passes_end(const GenerationRequest& request) const {
  const std::int64_t end = tokenizer_ == nullptr ? -1 : tokenizer_->end_of_document();
  return end >= 0 && std::ranges::find(request.end_tokens, end) == request.end_tokens.end();
}

std::string PromptEncoder::words_note(const Prompt& prompt) const {
  const auto* const text = std::get_if<std::string>(&prompt.content);
  if (text == nullptr || prompt.settings.special || tokenizer_ == nullptr) return "";
  const std::vector<std::string> names = tokenizer_->special_in(*text);
  if (names.empty()) return "";
  return fmt::format(
      "{}: {} in it stay words; with --special (\"special\": true in a file) they are the "
      "tokenizer's tokens",
      prompt.where, printable_line(fmt::format("{}", fmt::join(names, ", "))));
}

std::string PromptEncoder::end_note(const GenerationRequest& request) const {
  if (!passes_end(request)) return "";
  const std::string name = printable_line(config_.special.of("eos_token"));
  return fmt::format(
      "the tokenizer's eos_token{}{} ({}) ends no answer: the model's eos_token_id is {}; give "
      "--stop {} to end there{}",
      name.empty() ? "" : " ", name, tokenizer_->end_of_document(),
      fmt::join(request.end_tokens, ", "), name.empty() ? "TOKEN" : fmt::format("'{}'", name),
      config_.chat_template.text.empty() ? "" : ", or --chat");
}

}  // namespace zero
