// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero::bench {

/// A key of zero_train's configuration, or a section of which all keys are alike, sorted by whether
/// training steps on random tokens are slower or faster with another value.
struct MeasuredKey {
  std::string_view key;
  const char* why_not;  ///< null: it counts; else why --set must not give it
};
/// The row of a key that takes effect in zero_train; null if nobody has sorted it.
const MeasuredKey* find_measured_key(std::string_view key);

/// Throws zero::Error naming the first of a user's overrides, "key=value", that would change
/// nothing in what is measured, or whose effect the section's own flags have.
void check_overrides(const std::vector<std::string>& overrides);

}  // namespace zero::bench
