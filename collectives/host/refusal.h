// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace zero::host {

/// Begins a line of text that says why a rank cannot do its part, in place of what its peers need.
inline constexpr char kRefused = '!';

/// Runs `work`, which gives a line; whatever it throws becomes a refusal. So a rank always comes to
/// the exchange in which its peers wait for its line.
template <typename Work>
std::string attempt(Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return kRefused + std::string(error.what());
  } catch (...) {
    return kRefused + std::string("an error without a message");
  }
}

}  // namespace zero::host
