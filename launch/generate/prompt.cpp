// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/message_text.h"
#include "base/utf8.h"
#include "files/disk_calls.h"
#include "inference/generation_request.h"
#include "launch/config/configuration.h"

namespace zero {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kContents{"ids", "messages", "prompt"};
constexpr std::array<std::string_view, 11> kSettings{
    "chat_template_kwargs", "max_tokens", "min_p",   "priority",
    "repetition_penalty",   "seed",       "special", "stop",
    "temperature",          "top_k",      "top_p"};

std::string no_tools() { return fmt::format("tools are not supported; {}", kRenderElsewhere); }

/// A key of other programs' requests, and what to do instead.
struct OtherKey {
  enum class Kind : std::uint8_t { field, tools };
  std::string_view name;
  std::string_view advice;  ///< of a field; of tools it is no_tools()
  Kind kind = Kind::field;
};
constexpr std::string_view kBatch =
    "give the fields of \"body\" themselves: an answer with --json has the number of its line";
constexpr std::array kOtherKeys{
    OtherKey{"max_completion_tokens", "give max_tokens"},
    OtherKey{"max_new_tokens", "give max_tokens"},
    OtherKey{"model", "leave it out: --model names the model of all prompts"},
    OtherKey{"stream", "leave it out: text appears as it comes, but with --json"},
    OtherKey{"enable_thinking", "give \"chat_template_kwargs\": {\"enable_thinking\": ...}"},
    OtherKey{"body", kBatch},
    OtherKey{"custom_id", kBatch},
    OtherKey{"method", kBatch},
    OtherKey{"url", kBatch},
    OtherKey{"tools", "", OtherKey::Kind::tools},
    OtherKey{"tool_choice", "", OtherKey::Kind::tools},
    OtherKey{"functions", "", OtherKey::Kind::tools}};

void check_no_tools(JsonFields& message, std::string_view role) {
  for (const char* name : {"tool_calls", "tool_call_id", "function_call"}) {
    const json& value = message.raw(name);
    if (value.is_null() || value.empty()) continue;
    message.refuse(name, "{}", no_tools());
  }
  if (role == "tool" && !message.has("content")) {
    message.refuse("content", "found none in a tool's message; {}", no_tools());
  }
}

/// Reads a text, or a list of {"type": "text", "text": "..."}.
void read_content(JsonFields& message, ChatMessage& read) {
  if (!message.raw("content").is_array()) {
    read.content = message.text("content");
    return;
  }
  for (JsonFields& part : message.objects("content")) {
    if (const std::string type = part.text("type"); type != "text") {
      part.refuse("type", "found \"{}\", expected \"text\": models here read text alone",
                  printable_line(type));
    }
    read.parts.push_back(part.text("text"));
    part.finish({});
  }
}

Prompt::Messages messages(JsonFields& fields) {
  Prompt::Messages all;
  for (JsonFields& message : fields.objects("messages")) {
    ChatMessage& read = all.emplace_back();
    read.role = message.text("role");
    check_no_tools(message, read.role);
    read_content(message, read);
    message.finish({});
  }
  return all;
}

void read_settings(JsonFields& fields, PromptSettings& settings) {
  Sampling& sampling = settings.sampling;
  settings.max_tokens = fields.integer("max_tokens", settings.max_tokens);
  if (fields.has("max_tokens") && settings.max_tokens < 1) {
    fields.refuse("max_tokens", "found {}, expected at least 1", settings.max_tokens);
  }
  sampling.temperature = fields.number("temperature", sampling.temperature);
  sampling.top_k = fields.integer("top_k", sampling.top_k);
  sampling.top_p = fields.number("top_p", sampling.top_p);
  sampling.min_p = fields.number("min_p", sampling.min_p);
  sampling.repetition_penalty = fields.number("repetition_penalty", sampling.repetition_penalty);
  sampling.seed = fields.unsigned_integer<std::uint64_t>("seed", sampling.seed);
  settings.special = fields.flag("special", settings.special);
  if (fields.has("stop")) {
    const bool one = fields.raw("stop").is_string();
    settings.stop = one ? std::vector{fields.text("stop")} : fields.texts("stop");
  }
  settings.priority = fields.integer("priority", settings.priority);
  constexpr std::int64_t kMost = GenerationRequest::kMostPriority;
  if (settings.priority < -kMost || settings.priority > kMost) {
    fields.refuse("priority", "found {}, expected -{} to {}", settings.priority, kMost, kMost);
  }
  if (fields.has("chat_template_kwargs")) {
    fields.object("chat_template_kwargs");
    settings.template_values = fields.raw("chat_template_kwargs");
  }
}

void check_known(std::string_view key, std::string_view where) {
  if (std::ranges::count(kContents, key) > 0 || std::ranges::count(kSettings, key) > 0) return;
  const auto* const other = std::ranges::find(kOtherKeys, key, &OtherKey::name);
  ZERO_CHECK(other == kOtherKeys.end(), "{}: unknown key \"{}\"; {}", where, other->name,
             other->kind == OtherKey::Kind::tools ? no_tools() : std::string(other->advice));
  fail("{}: unknown key \"{}\"; expected one of {}, and any of {}", where, printable_line(key),
       fmt::join(kContents, ", "), fmt::join(kSettings, ", "));
}

/// Throws if the line has another key, or not one content.
void check_keys(const json& line, std::string_view where) {
  int contents = 0;
  for (const auto& [key, value] : line.items()) {
    check_known(key, where);
    contents += std::ranges::count(kContents, key) > 0 && !value.is_null() ? 1 : 0;
  }
  ZERO_CHECK(contents == 1, "{}: has {} of prompt, ids and messages; expected one of them", where,
             contents);
}

void check_utf8(std::string_view text, std::string_view where) {
  if (const auto offset = first_invalid_utf8(text)) {
    fail("{}: byte {} is not UTF-8; expected a text in UTF-8", where, *offset);
  }
}

}  // namespace

void validate(const PromptSettings& settings, std::string_view where) {
  validate(settings.sampling, where);
  for (const std::string& stop : settings.stop) {
    ZERO_CHECK(!stop.empty(), "{}: stop is an empty text; expected one character at least", where);
    check_utf8(stop, fmt::format("{}: stop", where));
  }
}

Prompt::Ids parse_ids(std::string_view text, std::string_view where) {
  Prompt::Ids all;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    ZERO_CHECK(error == std::errc{} && (stop == end || *stop == ','),
               "{}: found \"{}\"; expected token ids as 1,2,3", where, printable_line(text));
    all.push_back(id);
    if (stop == end) return all;
    at = stop + 1;
  }
}

Prompt parse_prompt(std::string_view line, const PromptSettings& usual, const std::string& where) {
  check_utf8(line, where);
  json parsed = parse_json_text(line, where);
  ZERO_CHECK(parsed.is_object(), "{}: found {}; expected an object with prompt, ids or messages",
             where, printable_line(parsed.dump(-1, ' ', false, json::error_handler_t::replace)));
  check_keys(parsed, where);
  JsonFields fields(std::move(parsed), where, "");
  Prompt prompt{.where = where, .settings = usual};
  if (fields.has("messages")) {
    prompt.content = messages(fields);
  } else if (fields.has("ids")) {
    prompt.content = fields.whole_numbers<std::uint32_t>("ids");
  } else {
    prompt.content = fields.text("prompt");
  }
  read_settings(fields, prompt.settings);
  ZERO_CHECK(!fields.flag("special", false) || fields.has("prompt"),
             "{}: special is true beside ids or messages; expected it beside a prompt, a text in "
             "which special tokens act",
             where);
  validate(prompt.settings, where);
  return prompt;
}

std::vector<Prompt> read_prompts(const std::string& path, const PromptSettings& usual,
                                 const RefusePrompt& refuse) {
  errno = 0;
  std::ifstream file;
  const auto open = [&] {
    const files::DiskCall counted;  // who writes a pipe may take any time
    file.open(path, std::ios::binary);
  };
  const auto next = [&](std::string& line) {
    const files::DiskCall counted;
    return static_cast<bool>(std::getline(file, line));
  };
  open();
  std::vector<Prompt> prompts;
  std::int64_t number = 0;
  for (std::string line; next(line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      prompts.push_back(parse_prompt(line, usual, fmt::format("{}:{}", path, number)));
      prompts.back().number = number;
    } catch (const Error& error) {
      refuse(number, error.what());
    }
  }
  ZERO_CHECK(file.eof() && !file.bad(), "{}: cannot read the prompts: {}", path,
             errno != 0 ? std::strerror(errno) : "it is not a file");
  return prompts;
}

}  // namespace zero
