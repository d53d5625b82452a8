// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_groups.h"

#include <limits>

#include "base/error.h"

namespace zero {

void validate(const ParameterGroup& group) {
  const auto fits = [](double value) {  // the update has it in fp32
    return value >= 0 && value <= std::numeric_limits<float>::max();
  };
  const double decay = group.weight_decay.value_or(0.0);
  ZERO_CHECK(
      fits(group.learning_rate_scale) && fits(decay),
      "parameter group \"{}\" has learning_rate_scale {} and weight_decay {}, expected finite "
      "values of 0 or more",
      group.pattern, group.learning_rate_scale, decay);
}

GroupSettings settings_for(const std::vector<ParameterGroup>& groups, std::string_view full_name,
                           double default_weight_decay) {
  for (const ParameterGroup& group : groups) {
    if (!matches(group.pattern, full_name)) continue;
    validate(group);
    return {.learning_rate_scale = group.learning_rate_scale,
            .weight_decay = group.weight_decay.value_or(default_weight_decay)};
  }
  return {.learning_rate_scale = 1, .weight_decay = default_weight_decay};
}

bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last '*' met
  std::size_t resume = 0;                     // end of the run it matches so far
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // let the star take one character more
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace zero
