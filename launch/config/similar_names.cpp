// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/similar_names.h"

#include <algorithm>
#include <cctype>

namespace zero {
namespace {

bool same_letter(char x, char y) {
  return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
}

int edit_distance(std::string_view a, std::string_view b) {
  // rows[i][j]: distance of the first i characters of a and the first j of b (optimal alignment)
  std::vector<std::vector<int>> rows(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) rows[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replace = rows[i - 1][j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1])) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates,
                         int part) {
  std::string best;
  // A longer word is no misspelt key, and its table would take memory by the square.
  constexpr std::size_t kLongest = 200;
  if (word.size() > kLongest) return best;
  int least = std::max(1, static_cast<int>(word.size()) / part) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(word, candidates);
  return near.empty() ? "" : ": did you mean " + near + "?";
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, same_letter);
}

std::string as_listed(const std::string& text, const std::vector<std::string>& candidates) {
  const auto found = std::ranges::find_if(
      candidates, [&](const std::string& candidate) { return same_letters(candidate, text); });
  return found == candidates.end() ? text : *found;
}

}  // namespace zero
