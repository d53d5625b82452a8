// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/config/configuration.h"
#include "launch/config/option.h"
#include "launch/config/refusals.h"

namespace zero {

/// `text` as one word of a shell.
std::string shell_word(const std::string& text);

/// "key=value" as --set takes it, quoted for a shell where it has to be.
std::string override_of(const std::string& path, const nlohmann::json& value);

/// override_of() as an answer. Empty if --set cannot name the key, or a line cannot show the value.
std::vector<std::string> answer_of(const std::string& path, const nlohmann::json& value);

/// The override that gives an option its default, or, if it must be given, a word to replace.
std::string default_override(const Option& option);

/// The override that takes `path` out of a file. Empty if --set cannot name such a key.
std::vector<std::string> removal_of(const std::string& path);

/// As removal_of(), but of the whole section if no key of it takes effect.
std::vector<std::string> removal_with_section(const std::string& path);

/// A key and its value; null takes it out.
struct KeyValue {
  std::string path;
  nlohmann::json value{};
};
/// answer_of() the first of `answers` whose key --set has not given: that no other --set answers.
/// Empty if there is none.
std::vector<std::string> answer_to_file(const Configuration& values,
                                        std::initializer_list<KeyValue> answers);

/// Refuses what `values` have for the keys of `answers`, by a message behind the file's name.
template <typename... Arguments>
Refusal refusal_of(const Configuration& values, std::initializer_list<KeyValue> answers,
                   fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  return {fmt::format("{}: {}", values.source(),
                      fmt::format(format, std::forward<Arguments>(arguments)...)),
          answer_to_file(values, answers)};
}

/// The key and its value that ask for the same as `value` of what frameworks above DeepSpeed call
/// `name`: "fsdp" "full_shard" is stage 3. Nothing if none does.
std::optional<KeyValue> meant_by(const std::string& name, const nlohmann::json& value);

}  // namespace zero
