// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; case is
/// ignored.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, or an empty string when none is near (a third of its length).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace zero
