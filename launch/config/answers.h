// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/config/configuration.h"
#include "launch/config/option.h"

namespace zero {

/// "key=value" as --set takes it, quoted for a shell where it has to be.
std::string override_of(const std::string& path, const nlohmann::json& value);

/// override_of() as an answer. Empty if --set cannot name the key, or a line cannot show the value.
std::vector<std::string> answer_of(const std::string& path, const nlohmann::json& value);

/// answer_of() to what `values` have for `path`. Empty if --set gave that, which no other answers.
std::vector<std::string> answer_to_file(const Configuration& values, const std::string& path,
                                        const nlohmann::json& value);

/// The override that gives an option its default, or, if it must be given, a word to replace.
std::string default_override(const Option& option);

/// The override that takes `path` out of a file. Empty if --set cannot name such a key.
std::vector<std::string> removal_of(const std::string& path);

/// As removal_of(), but of the whole section if no key of it takes effect.
std::vector<std::string> removal_with_section(const std::string& path);

/// The key that means what frameworks above DeepSpeed call `name`; null if none does.
const Option* option_called(const std::string& name);

}  // namespace zero
