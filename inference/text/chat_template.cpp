// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/chat_template.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "inference/text/unicode.h"

namespace zero {
namespace {

using Messages = std::span<const ChatMessage>;

/// A chat template's text, with the one kind of quotes.
class Template {
 public:
  explicit Template(std::string text) : text_(std::move(text)) {
    std::ranges::replace(text_, '"', '\'');
  }
  bool has(std::string_view part) const { return text_.find(part) != std::string::npos; }
  bool has_any(std::initializer_list<std::string_view> parts) const {
    return std::ranges::any_of(parts, [&](std::string_view part) { return has(part); });
  }

  /// The words between `begin` and `end`, which are literal: nothing if a quote lies between.
  /// \n may be written as such.
  std::string literal(std::string_view begin, std::string_view end) const {
    for (std::size_t at = 0; (at = text_.find(begin, at)) != std::string::npos; ++at) {
      const std::size_t first = at + begin.size();
      const std::size_t last = text_.find(end, first);
      if (last == std::string::npos) return "";
      const std::string words = text_.substr(first, last - first);
      if (words.find_first_of("'{}") != std::string::npos && end != "'") continue;
      return replaced(words, "\\n", "\n");
    }
    return "";
  }

 private:
  std::string text_;
};

/// A prompt under construction.
class Pieces {
 public:
  /// Appends words of the template.
  void words(std::string text) { add(std::move(text), true); }
  /// Appends words of a message.
  void content(std::string_view text) { add(std::string(text), false); }
  std::vector<PromptPiece> take() { return std::move(all_); }

 private:
  void add(std::string text, bool from_template) {
    if (!text.empty()) all_.push_back({std::move(text), from_template});
  }

  std::vector<PromptPiece> all_;
};

bool begins_with_system(Messages messages) { return messages.front().role == "system"; }

Pieces render_chatml(const Template& words, Messages messages) {
  Pieces out;
  std::string system = words.literal("<|im_start|>system\\n", "<|im_end|>");
  if (system.empty()) system = words.literal("<|im_start|>system\n", "<|im_end|>");
  if (!system.empty() && !begins_with_system(messages)) {
    out.words(fmt::format("<|im_start|>system\n{}<|im_end|>\n", system));
  }
  for (const ChatMessage& message : messages) {
    out.words(fmt::format("<|im_start|>{}\n", message.role));
    out.content(message.content);
    out.words("<|im_end|>\n");
  }
  out.words("<|im_start|>assistant\n");
  return out;
}

Pieces render_llama3(const Template& words, Messages messages, const TokenizerConfig& config,
                     const std::string& date) {
  const auto header = [](std::string_view role) {
    return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role);
  };
  Pieces out;
  out.words(config.bos_token);
  if (words.has("Cutting Knowledge Date")) {
    out.words(header("system"));
    out.words(
        fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n",
                    words.has("strftime_now") ? date : words.literal("date_string = '", "'")));
    if (begins_with_system(messages)) {
      out.content(trimmed(messages.front().content));
      messages = messages.subspan(1);
    }
    out.words("<|eot_id|>");
  }
  for (const ChatMessage& message : messages) {
    out.words(header(message.role));
    out.content(trimmed(message.content));
    out.words("<|eot_id|>");
  }
  out.words(header("assistant"));
  return out;
}

/// Trims the system message and the user's first one as the one text that they make.
Pieces render_llama2(Messages messages, const TokenizerConfig& config) {
  const ChatMessage* system = begins_with_system(messages) ? &messages.front() : nullptr;
  if (system != nullptr) messages = messages.subspan(1);
  Pieces out;
  for (const ChatMessage& message : messages) {
    std::string_view content = trimmed(message.content);
    if (message.role == "user") {
      out.words(config.bos_token + "[INST] ");
      if (system != nullptr) {
        content = message.content;
        content.remove_suffix(trailing_space(content));
        out.words("<<SYS>>\n");
        out.content(system->content);
        out.words(content.empty() ? "\n<</SYS>>" : "\n<</SYS>>\n\n");
        system = nullptr;
      }
      out.content(content);
      out.words(" [/INST]");
    } else {
      out.words(" ");
      out.content(content);
      out.words(" " + config.eos_token);
    }
  }
  return out;
}

/// How a template of Mistral's writes an assistant's message.
struct Answer {
  std::string_view written;
  std::string_view before;
  std::string_view behind;
};
constexpr std::array kAnswers{Answer{"' ' + message['content'] + eos_token", " ", ""},
                              Answer{"message['content'] + eos_token + ' '", "", " "},
                              Answer{"message['content'] + eos_token", "", ""}};

Pieces render_mistral(const Template& words, const Answer& answer, Messages messages,
                      const TokenizerConfig& config) {
  Pieces out;
  out.words(config.bos_token);
  for (const ChatMessage& message : messages) {
    const bool user = message.role == "user";
    out.words(user ? "[INST] " : std::string(answer.before));
    out.content(message.content);
    out.words(user ? words.has("' [/INST]'") ? " [/INST]" : "[/INST]"
                   : fmt::format("{}{}", config.eos_token, answer.behind));
  }
  return out;
}

enum class Roles : std::uint8_t { any, alternate };

void check(Messages messages, Roles roles, const TokenizerConfig& config) {
  ZERO_CHECK(!messages.empty(), "a chat has no messages; give at least one");
  const std::size_t first = begins_with_system(messages) ? 1 : 0;
  ZERO_CHECK(first < messages.size(), "a chat has a system message alone; add a user's message");
  for (std::size_t i = first; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const std::string_view turn = (i - first) % 2 == 0 ? "user" : "assistant";
    ZERO_CHECK(role == "user" || role == "assistant",
               "messages[{}].role: found \"{}\", expected user or assistant, or system first", i,
               role);
    ZERO_CHECK(roles == Roles::any || role == turn,
               "messages[{}].role: found {}, expected {}: the chat template in {} asks for turns "
               "of user and assistant",
               i, role, turn, config.chat_template_file);
  }
}

}  // namespace

std::vector<PromptPiece> render_chat(const TokenizerConfig& config,
                                     std::span<const ChatMessage> messages,
                                     const std::string& date) {
  ZERO_CHECK(
      !config.chat_template.empty(),
      "{}: has no chat_template, so the model was not made to chat; give it text to continue",
      config.chat_template_file);
  const Template words(config.chat_template);
  const bool thinks = words.has_any({"<think>", "enable_thinking", "reasoning"});
  const bool inst = words.has("[INST]");
  const bool chatml = words.has("<|im_start|>");
  const bool llama3 = words.has("<|start_header_id|>");
  const bool trims = words.has_any({"trim", "strip()"});
  if (!thinks && inst + chatml + llama3 == 1) {
    check(messages, inst ? Roles::alternate : Roles::any, config);
    if (chatml && !trims && !words.has("bos_token")) return render_chatml(words, messages).take();
    if (llama3 && trims) return render_llama3(words, messages, config, date).take();
    if (inst && trims && words.has("<<SYS>>")) return render_llama2(messages, config).take();
    if (inst && !trims) {
      const auto* answer =
          std::ranges::find_if(kAnswers, [&](const auto& a) { return words.has(a.written); });
      ZERO_CHECK(!begins_with_system(messages),
                 "messages[0].role: found system, which the chat template in {} does not know; "
                 "put its words into the first user message",
                 config.chat_template_file);
      if (answer != kAnswers.end()) return render_mistral(words, *answer, messages, config).take();
    }
  }
  fail(
      "{}: the chat_template is not a known one: ChatML (Qwen2), Llama 3, Llama 2 or Mistral's "
      "[INST], none of them with reasoning; give the model the prompt's text itself",
      config.chat_template_file);
}

}  // namespace zero
