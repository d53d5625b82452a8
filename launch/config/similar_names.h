// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// The candidate nearest to `word` by insertions, deletions, replacements and swaps of neighbours,
/// ignoring case; an empty string if none is near: at most one, or length / `part` of them.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates,
                         int part = 3);

/// ": did you mean layers?", or nothing if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

/// Whether the texts differ in case alone, or not at all.
bool same_letters(std::string_view a, std::string_view b);

/// The candidate that differs from `text` only in case ("adamw"); otherwise `text`.
std::string as_listed(const std::string& text, const std::vector<std::string>& candidates);

}  // namespace zero
