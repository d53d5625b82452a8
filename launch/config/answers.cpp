// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/answers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/message_text.h"

namespace zero {

using nlohmann::json;

namespace {

/// The words of a text, or of a list of texts, in small letters.
std::string words_of(const json& value) {
  std::string words;
  for (const json& word : value.is_array() ? value : json::array({value})) {
    if (word.is_string()) words += word.get<std::string>() + " ";
  }
  std::ranges::transform(words, words.begin(),
                         [](const unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return words;
}

/// The stage that shards as FSDP does under strategies of these names, or where it is switched on;
/// nothing where it is not.
std::optional<KeyValue> stage_of_fsdp(const json& strategies) {
  const std::string words = words_of(strategies);
  const auto has = [&](const char* word) { return words.find(word) != std::string::npos; };
  if (strategies != true && words.find_first_not_of(' ') == std::string::npos) return std::nullopt;
  const int stage = has("no_shard") ? 0 : has("shard_grad_op") || has("zero2") ? 2 : 3;
  return KeyValue{"zero_optimization.stage", stage};
}

/// The strategy of an object fsdp_config: by its name or number, or by what is kept gathered.
json strategy_of(const json& config) {
  constexpr std::array kNumbered{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                 "hybrid_shard_zero2"};
  for (const char* const prefix : {"", "fsdp_"}) {
    const json named = config.value(prefix + std::string("sharding_strategy"), json());
    const json number =
        named.is_string() ? json::parse(named.get<std::string>(), nullptr, false) : named;
    if (number.is_number_integer() && number >= 1 && number <= 5) {
      return kNumbered.at(number.get<std::size_t>() - 1);
    }
    if (named.is_string()) return named;
    if (config.value(prefix + std::string("reshard_after_forward"), json()) == false) {
      return "shard_grad_op";
    }
  }
  return true;
}

/// Whether a line shows the text as it is.
bool fits_line(const std::string& text) { return printable_line(text, text.size()) == text; }

}  // namespace

std::string shell_word(const std::string& text) {
  const bool plain = std::ranges::all_of(text, [](const char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string("_-./=,:+@%").find(c) != std::string::npos;
  });
  if (plain) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string override_of(const std::string& path, const json& value) {
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', false, json::error_handler_t::replace);
  return shell_word(path + "=" + text);
}

std::string default_override(const Option& option) {
  return override_of(option.path,
                     option.fallback.empty() ? json("FILE") : json::parse(option.fallback));
}

std::vector<std::string> answer_of(const std::string& path, const json& value) {
  const bool nameless = path.empty() || path.starts_with('-') ||
                        path.find('=') != std::string::npos || !fits_line(path);
  if (nameless || (value.is_string() && !fits_line(value.get<std::string>()))) return {};
  return {override_of(path, value)};
}

std::vector<std::string> answer_to_file(const Configuration& values,
                                        std::initializer_list<KeyValue> answers) {
  for (const auto& [path, value] : answers) {
    if (!values.at(path).source.starts_with("--set")) return answer_of(path, value);
  }
  return {};
}

std::vector<std::string> removal_of(const std::string& path) { return answer_of(path, json()); }

std::vector<std::string> removal_with_section(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return removal_of(path);
  const std::string prefix = path.substr(0, dot + 1);
  const bool takes_effect = std::ranges::any_of(option_table(), [&](const Option& option) {
    return option.path.starts_with(prefix) && option.handling == Handling::honoured;
  });
  return removal_of(takes_effect ? path : path.substr(0, dot));
}

std::optional<KeyValue> meant_by(const std::string& name, const json& value) {
  if (name == "fsdp") return stage_of_fsdp(value);
  if (name == "fsdp_config" && value.is_object() && !value.empty())
    return stage_of_fsdp(strategy_of(value));
  if (name == "mixed_precision" && (value == "bf16" || value == "fp16")) {
    return KeyValue{value.get<std::string>() + ".enabled", true};
  }
  static const std::map<std::string, const char*> others{
      {"max_grad_norm", "gradient_clipping"},
      {"learning_rate", "optimizer.params.lr"},
      {"warmup_steps", "scheduler.params.warmup_num_steps"},
      {"max_steps", "run.steps"}};
  const auto found = others.find(name);
  return found == others.end() ? std::nullopt : std::optional(KeyValue{found->second, value});
}

}  // namespace zero
