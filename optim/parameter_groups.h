// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Overrides for parameters whose full name matches `pattern` ('*' any run of characters, '?' one
/// character).
struct ParameterGroup {
  std::string pattern;
  double learning_rate_scale = 1;
  std::optional<double> weight_decay{};  ///< unset: the optimizer's
};

/// Throws zero::Error naming the group's pattern if a number is out of range.
void validate(const ParameterGroup& group);

/// The settings of one parameter.
struct GroupSettings {
  double learning_rate_scale = 1;
  double weight_decay = 0;
};

/// The first group whose pattern matches decides; no match gives {1, default_weight_decay}.
GroupSettings settings_for(const std::vector<ParameterGroup>& groups, std::string_view full_name,
                           double default_weight_decay);

/// Whether `text` matches `pattern` ('*', '?').
bool matches(std::string_view pattern, std::string_view text);

}  // namespace zero
