// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/evaluator.h"

namespace zero::jinja {

using Filter = Value (*)(Evaluator& evaluator, const Value& input, const Arguments& arguments);

/// A filter of lists and maps; null if none has the name.
Filter list_filter(std::string_view name);
std::vector<std::string_view> list_filter_names();

/// A replacement in a text: parameters of the filter and of the method.
struct Replacement {
  Text from;
  Text to;
  std::int64_t most = -1;                  ///< times; negative: always
  Origin counted = Origin::from_template;  ///< that of `most`
};
/// jinja::replaced(), within the budget.
Value replaced_in(Evaluator& evaluator, const Text& text, Replacement replacement);
/// The texts with `between` between them, within the budget; with borders too if they were `chosen`
/// by contents.
Value joined_by(Evaluator& evaluator, const Text& between, const std::vector<Text>& texts,
                Origin chosen);

}  // namespace zero::jinja
