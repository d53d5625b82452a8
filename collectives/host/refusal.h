// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace zero::host {

/// First character of a line that says why a rank cannot do its part, sent in place of the line
/// that its peers expect.
inline constexpr char kRefused = '!';

/// Runs `work`, which returns a line, and turns an exception into a refusal, so that a rank always
/// comes to the exchange in which its peers wait for its line.
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
