// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "launch/config/option.h"

namespace zero {

/// `value` in the form that the option keeps: 5e8 as a whole number, a choice in the table's
/// spelling. Throws zero::Error naming source, key, the value found and those expected.
nlohmann::json checked_value(const Option& option, const nlohmann::json& value,
                             const std::string& source);

/// The beginning of a value, for messages.
std::string shown_value(const nlohmann::json& value);

}  // namespace zero
