// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "inference/text/jinja/evaluator.h"

namespace zero::jinja {

using Filter = Value (*)(Evaluator& evaluator, const Value& input, const Arguments& arguments);

/// A filter of lists and maps; null if none has the name.
Filter list_filter(std::string_view name);
std::vector<std::string_view> list_filter_names();

/// jinja::replaced(), within the budget.
Value replaced_in(Evaluator& evaluator, const Text& text, const Text& from, const Text& to,
                  std::int64_t most);
/// The texts with `between` between them, within the budget; with borders too if they were `chosen`
/// by contents.
Value joined_by(Evaluator& evaluator, const Text& between, const std::vector<Text>& texts,
                Origin chosen);

}  // namespace zero::jinja
