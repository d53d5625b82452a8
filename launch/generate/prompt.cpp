// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "inference/generation_request.h"
#include "launch/config/configuration.h"

namespace zero {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  return printable_line(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

/// The value of a key, as the type that is asked for.
struct Field {
  const std::string& where;
  const std::string& key;
  const json& value;

  [[noreturn]] void refuse(std::string_view expected) const {
    fail("{}: {} is {}; expected {}", where, key, shown(value), expected);
  }
  std::string text() const {
    if (!value.is_string()) refuse("a text");
    return value.get<std::string>();
  }
  bool flag() const {
    if (!value.is_boolean()) refuse("true or false");
    return value.get<bool>();
  }
  double number() const {
    if (!value.is_number()) refuse("a number");
    return value.get<double>();
  }
  /// Negative numbers are for others to refuse.
  std::int64_t integer() const {
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<std::uint64_t>() > most<std::int64_t>)) {
      refuse("a whole number");
    }
    return value.get<std::int64_t>();
  }
  template <typename Unsigned>
  Unsigned unsigned_integer() const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most<Unsigned>) {
      refuse(fmt::format("a whole number from 0 to {}", most<Unsigned>));
    }
    return value.get<Unsigned>();
  }
  Field item(const json& of) const { return {where, key, of}; }

  template <typename Integer>
  static constexpr Integer most = std::numeric_limits<Integer>::max();
};

std::vector<std::string> texts(const Field& field) {
  if (!field.value.is_array()) field.refuse("a list of texts");
  std::vector<std::string> all;
  for (const json& item : field.value) all.push_back(field.item(item).text());
  return all;
}

Prompt::Ids ids(const Field& field) {
  if (!field.value.is_array()) field.refuse("a list of token ids");
  Prompt::Ids all;
  for (const json& item : field.value) {
    all.push_back(field.item(item).unsigned_integer<std::uint32_t>());
  }
  return all;
}

Prompt::Messages messages(const Field& field) {
  if (!field.value.is_array()) field.refuse("a list of messages");
  Prompt::Messages all;
  for (const json& item : field.value) {
    const bool good = item.is_object() && item.size() == 2 && item.contains("role") &&
                      item.contains("content") && item["role"].is_string() &&
                      item["content"].is_string();
    if (!good) field.item(item).refuse(R"({"role": "...", "content": "..."} each)");
    all.push_back({item["role"], item["content"]});
  }
  return all;
}

using Setter = void (*)(Prompt&, const Field&);
const std::map<std::string, Setter, std::less<>> kContents{
    {"prompt", [](Prompt& prompt, const Field& field) { prompt.content = field.text(); }},
    {"ids", [](Prompt& prompt, const Field& field) { prompt.content = ids(field); }},
    {"messages", [](Prompt& prompt, const Field& field) { prompt.content = messages(field); }},
};
const std::map<std::string, Setter, std::less<>> kSettings{
    {"max_tokens",
     [](Prompt& prompt, const Field& field) {
       prompt.settings.max_tokens = field.integer();
       if (prompt.settings.max_tokens < 1) field.refuse("at least 1");
     }},
    {"temperature",
     [](Prompt& prompt, const Field& field) {
       prompt.settings.sampling.temperature = field.number();
     }},
    {"top_k",
     [](Prompt& prompt, const Field& field) { prompt.settings.sampling.top_k = field.integer(); }},
    {"top_p",
     [](Prompt& prompt, const Field& field) { prompt.settings.sampling.top_p = field.number(); }},
    {"min_p",
     [](Prompt& prompt, const Field& field) { prompt.settings.sampling.min_p = field.number(); }},
    {"repetition_penalty",
     [](Prompt& prompt, const Field& field) {
       prompt.settings.sampling.repetition_penalty = field.number();
     }},
    {"seed",
     [](Prompt& prompt, const Field& field) {
       prompt.settings.sampling.seed = field.unsigned_integer<std::uint64_t>();
     }},
    {"special", [](Prompt& prompt, const Field& field) { prompt.settings.special = field.flag(); }},
    {"stop", [](Prompt& prompt, const Field& field) { prompt.settings.stop = texts(field); }},
    {"priority",
     [](Prompt& prompt, const Field& field) {
       constexpr std::int64_t kMost = GenerationRequest::kMostPriority;
       prompt.settings.priority = field.integer();
       if (prompt.settings.priority < -kMost || prompt.settings.priority > kMost) {
         field.refuse(fmt::format("-{} to {}", kMost, kMost));
       }
     }},
};

std::string key_list(const std::map<std::string, Setter, std::less<>>& keys) {
  std::vector<std::string> all;
  for (const auto& [key, setter] : keys) all.push_back(key);
  return fmt::format("{}", fmt::join(all, ", "));
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
  const json parsed = parse_json_text(line, where);
  ZERO_CHECK(parsed.is_object(), "{}: found {}; expected an object with prompt, ids or messages",
             where, shown(parsed));
  Prompt prompt{.where = where, .settings = usual};
  int contents = 0;
  for (const auto& [key, value] : parsed.items()) {
    const auto content = kContents.find(key);
    const auto setting = kSettings.find(key);
    const bool is_content = content != kContents.end();
    ZERO_CHECK(is_content || setting != kSettings.end(),
               "{}: unknown key \"{}\"; expected one of {}, and any of {}", where,
               printable_line(key), key_list(kContents), key_list(kSettings));
    contents += is_content ? 1 : 0;
    (is_content ? content : setting)->second(prompt, {where, key, value});
  }
  ZERO_CHECK(contents == 1, "{}: has {} of prompt, ids and messages; expected one of them", where,
             contents);
  const bool text = std::holds_alternative<std::string>(prompt.content);
  ZERO_CHECK(!parsed.value("special", false) || text,
             "{}: special is true beside ids or messages; expected it beside a prompt, a text in "
             "which special tokens act",
             where);
  validate(prompt.settings, where);
  return prompt;
}

std::vector<Prompt> read_prompts(const std::string& path, const PromptSettings& usual,
                                 const RefusePrompt& refuse) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::vector<Prompt> prompts;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
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
