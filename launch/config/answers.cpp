// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/answers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "launch/config/checked_value.h"
#include "launch/config/refusals.h"

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
bool fits_line(const std::string& text) {
  return printable_text(text) == text && text.find_first_of("\n\t") == std::string::npos;
}

/// A number above 0 of an object.
std::optional<double> positive(const json& params, const char* key) {
  const auto found = params.find(key);
  if (found == params.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return value > 0 && value < 1e15 ? std::optional(value) : std::nullopt;
}

/// Whether a key takes a value.
bool fits(const KeyValue& given) {
  const Option& option = *find_option(given.path);
  return Refusals().collect([&] { checked_value(option, given.value, ""); });
}

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

std::vector<KeyValue> linear_like_one_cycle(const json& params) {
  std::vector<KeyValue> values{{"scheduler.params", json()}, {"scheduler.type", "linear"}};
  if (!params.is_object()) return values;
  const std::string prefix = "scheduler.params.";
  const auto up = positive(params, "cycle_first_step_size");
  if (up) {
    const double down = positive(params, "cycle_second_step_size").value_or(*up);
    const KeyValue warmup{prefix + "warmup_num_steps", std::llround(*up)};
    const KeyValue total{prefix + "total_num_steps", std::llround(*up + down)};
    if (fits(warmup) && fits(total)) values.insert(values.end(), {warmup, total});
  }
  const auto high = positive(params, "cycle_max_lr");
  if (!high) return values;
  const auto low = positive(params, "cycle_min_lr");
  const KeyValue ratio{prefix + "min_ratio", low.value_or(0) / *high};
  const KeyValue rate{"optimizer.params.lr", *high};
  if (low && fits(ratio)) values.push_back(ratio);
  if (fits(rate)) values.push_back(rate);
  return values;
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
