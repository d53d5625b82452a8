// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "launch/config/option.h"

namespace zero {

/// `given` in the form that the option keeps: 5e8 as a whole number, a choice in the table's
/// spelling. As in DeepSpeed, "true", 1 and "3e-5" are a boolean and numbers where the option is
/// one; where it is a text they stay what they are. Throws zero::Error naming source, key, the
/// value found and those expected.
nlohmann::json checked_value(const Option& option, const nlohmann::json& given,
                             const std::string& source);

/// The boolean that a value is as pydantic reads one: also 0, 1, and "true", "yes", "on", "1" and
/// the like in any case; nothing if it is none.
std::optional<bool> boolean_of(const nlohmann::json& value);

/// The seconds of a ValueType::duration; nothing if `value` is none.
std::optional<double> seconds_of(const nlohmann::json& value);

/// The bytes of a ValueType::bytes: a number, or a text as size_in_bytes() takes it; nothing if
/// `value` is none, or less than 1 or more than 2^60.
std::optional<std::int64_t> bytes_of(const nlohmann::json& value);

/// The beginning of a value, for messages.
std::string shown_value(const nlohmann::json& value);

}  // namespace zero
