// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Ends a text before the stop string that is complete first, however the text is cut into pushes.
/// Of several that end at one place, the longest counts.
class StopStrings {
 public:
  /// Throws zero::Error if one of `stops` is empty.
  explicit StopStrings(std::vector<std::string> stops);

  /// The text that is safe to show. What may begin a stop string is kept: at most the length of
  /// the longest less one byte. Nothing once stopped.
  std::string push(std::string_view text);
  bool stopped() const { return stopped_; }
  /// The end of a text that does not go on: what was kept.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  bool stopped_ = false;
};

}  // namespace zero
