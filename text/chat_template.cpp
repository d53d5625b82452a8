// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/message_text.h"
#include "text/added_tokens.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/reads.h"

namespace zero {
namespace {

using jinja::Origin;
using jinja::Text;
using jinja::Value;
using Variables = std::vector<std::pair<std::string, Value>>;

Value content_value(const ChatMessage& message, const jinja::Reads& reads) {
  if (message.parts.empty()) return Value(Text(message.content, Origin::content));
  if (!reads.parts) {
    return Value(Text(fmt::format("{}", fmt::join(message.parts, "\n")), Origin::content));
  }
  std::vector<Value> all;
  for (const std::string& part : message.parts) {
    all.push_back(Value::map({{Value::text("type"), Value::text("text")},
                              {Value::text("text"), Value(Text(part, Origin::content))}}));
  }
  return Value::list(std::move(all));
}

Value message_value(const ChatMessage& message, const jinja::Reads& reads) {
  const bool known = std::ranges::find(kChatRoles, message.role) != kChatRoles.end();
  return Value::map({{Value::text("role"),
                      Value(Text(message.role, known ? Origin::from_template : Origin::content))},
                     {Value::text("content"), content_value(message, reads)}});
}

/// Texts are no text of the template: special tokens written in them stay text.
Value value_of(const nlohmann::json& json) {
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_string()) return Value(Text(json.get<std::string>(), Origin::content));
  if (json.is_array()) {
    std::vector<Value> items;
    for (const nlohmann::json& item : json) items.push_back(value_of(item));
    return Value::list(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [key, item] : json.items()) {
      items.emplace_back(Text(key, Origin::content), value_of(item));
    }
    return Value::map(std::move(items));
  }
  const bool fits = json.is_number_float()
                        ? std::abs(json.get<double>()) < 0x1p63
                        : !json.is_number_unsigned() || json.get<std::uint64_t>() >> 63U == 0;
  ZERO_CHECK(fits, "chat_template_kwargs has {}; expected a number that 64 bits with a sign hold",
             json.dump());
  return json.is_number_integer() ? Value::integer(json.get<std::int64_t>())
                                  : Value(Value::Variant(json.get<double>()));
}

/// Throws for what transformers' apply_chat_template takes beside variables, and is not done here.
void check_is_variable(std::string_view name) {
  ZERO_CHECK(name != "tools", "chat_template_kwargs has \"tools\": tools are not supported; {}",
             kRenderElsewhere);
  ZERO_CHECK(name != "continue_final_message",
             "chat_template_kwargs has \"continue_final_message\", which is no variable of "
             "templates: an answer is always a message of its own; to continue one, {}",
             kRenderElsewhere);
}

/// Further variables, beside those that every chat with this tokenizer has.
void add_values(const nlohmann::json& values, const jinja::Reads& reads, Variables& variables) {
  const std::size_t own = variables.size();
  const auto is_own = [&](const std::string& name) {
    const auto end = variables.begin() + static_cast<std::ptrdiff_t>(own);
    return std::find_if(variables.begin(), end,
                        [&](const auto& each) { return each.first == name; }) != end;
  };
  for (const auto& [name, value] : values.items()) {
    check_is_variable(name);
    ZERO_CHECK(!is_own(name),
               "chat_template_kwargs has \"{}\", which every chat has already; leave it out",
               printable_line(name));
    if (!reads.names.contains(name)) {
      std::vector<std::string> read(reads.variables.begin(), reads.variables.end());
      std::erase_if(read, is_own);
      fail("chat_template_kwargs has \"{}\", and the template has no variable {}; it reads: {}",
           printable_line(name), printable_line(name),
           read.empty() ? "none" : printable_line(fmt::format("{}", fmt::join(read, ", "))));
    }
    variables.emplace_back(name, value_of(value));
  }
}

Variables variables_of(const TokenizerConfig& config, std::span<const ChatMessage> messages,
                       const nlohmann::json& values, const jinja::Reads& reads) {
  std::vector<Value> all;
  for (const ChatMessage& message : messages) all.push_back(message_value(message, reads));
  Variables variables{{"messages", Value::list(std::move(all))},
                      {"tools", Value::none()},
                      {"documents", Value::none()},
                      {"add_generation_prompt", Value::boolean(true)}};
  for (const auto& [part, name] : config.special.names) {
    variables.emplace_back(part, Value::text(name.content));
  }
  std::vector<Value> additional;
  for (const std::string& name : config.special.additional) {
    additional.push_back(Value::text(name));
  }
  if (!additional.empty()) {
    variables.emplace_back("additional_special_tokens", Value::list(std::move(additional)));
  }
  add_values(values, reads, variables);
  return variables;
}

/// What `act` returns. Throws zero::Error "FILE: the chat template, line N: ...", with what to do.
template <typename Act>
auto of_template(const ChatTemplate& chat, const Act& act) {
  try {
    return act();
  } catch (const Error& error) {
    fail(
        "{}: the chat template, {}; change the messages if the template asks for others, or give "
        "the prompt's whole text, rendered elsewhere, with --special (\"special\": true in a file "
        "of prompts)",
        chat.file, printable_line(error.what()));
  }
}

jinja::Syntax syntax_of(const ChatTemplate& chat) {
  constexpr std::size_t kLongest = std::size_t{1} << 20U;
  ZERO_CHECK(chat.text.size() <= kLongest,
             "{}: the chat template has {} bytes; expected at most {}", chat.file, chat.text.size(),
             kLongest);
  return of_template(chat, [&] { return jinja::parse(chat.text); });
}

/// Contents without a byte are pieces where the template wrote what is before and behind them.
std::vector<PromptPiece> pieces_of(const Text& text) {
  std::vector<PromptPiece> pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const bool of_template = text.origin(begin) == Origin::from_template;
    std::size_t end = begin + 1;
    while (end < text.size() && text.origin(end) == text.origin(begin) &&
           !(of_template && text.border(end))) {
      ++end;
    }
    if (of_template && !pieces.empty() && pieces.back().from_template) pieces.push_back({});
    pieces.push_back({text.bytes().substr(begin, end - begin), of_template});
    begin = end;
  }
  return pieces;
}

}  // namespace

std::vector<PromptPiece> render_chat(const TokenizerConfig& config,
                                     std::span<const ChatMessage> messages, const std::tm& now,
                                     const nlohmann::json& values) {
  const ChatTemplate& found = config.chat_template;
  ZERO_CHECK(
      found.names.empty(),
      "{}: {} chat template{} ({}) and none is named \"default\"; copy the text of the one to use "
      "into a file chat_template.jinja in the tokenizer's folder",
      found.file, found.names.size() == 1 ? "there is one" : "there are several",
      found.names.size() == 1 ? "" : "s",
      printable_line(fmt::format("{}", fmt::join(found.names, ", "))));
  ZERO_CHECK(!found.found || !found.text.empty(),
             "{}: the chat template is empty, so that messages would write nothing; put the "
             "template's text there, or give text to continue",
             found.file);
  ZERO_CHECK(
      !found.text.empty(),
      "{}: has no chat_template, so the model was not made to chat; give it text to continue",
      found.file);
  ZERO_CHECK(!messages.empty(), "a chat has no messages; give at least one");
  const jinja::Syntax syntax = syntax_of(found);
  Variables variables = variables_of(config, messages, values, jinja::reads_of(syntax));
  std::size_t bytes = 0;
  for (const auto& [name, value] : variables) bytes += weight_of(value);
  return of_template(found, [&] {
    return pieces_of(jinja::Evaluator(jinja::Budget(bytes), now).run(syntax, std::move(variables)));
  });
}

}  // namespace zero
