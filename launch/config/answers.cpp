// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/answers.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/printable.h"

namespace zero {

using nlohmann::json;

namespace {

/// `text` as one word of a shell.
std::string quoted(const std::string& text) {
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

/// Whether a line shows the text as it is.
bool fits_line(const std::string& text) { return printable_line(text, text.size()) == text; }

}  // namespace

std::string override_of(const std::string& path, const json& value) {
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', false, json::error_handler_t::replace);
  return quoted(path + "=" + text);
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

std::vector<std::string> answer_to_file(const Configuration& values, const std::string& path,
                                        const json& value) {
  if (values.at(path).source.starts_with("--set")) return {};
  return answer_of(path, value);
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

const Option* option_called(const std::string& name) {
  struct Other {
    const char* name;
    const char* path;
  };
  constexpr std::array kOthers{
      Other{"max_grad_norm", "gradient_clipping"},
      Other{"learning_rate", "optimizer.params.lr"},
      Other{"warmup_steps", "scheduler.params.warmup_num_steps"},
      Other{"max_steps", "run.steps"},
  };
  const auto* const found = std::ranges::find(kOthers, name, &Other::name);
  return found == kOthers.end() ? nullptr : find_option(found->path);
}

}  // namespace zero
