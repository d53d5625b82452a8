// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace zero {

/// The only exception of the library. The message names the source (rank, operation, unit, file,
/// key or tensor), the value found, the value expected, and the remedy. The library throws and
/// never exits, but for one case (nccl::Session); only a `main` ends a job.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// Throws zero::Error with a formatted message: `fail("[rank {}] ...", rank)`.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace zero

/// Throws zero::Error unless `condition` holds. A macro only so that the message is not built on
/// success.
#define ZERO_CHECK(condition, ...)               \
  do {                                           \
    if (!(condition)) ::zero::fail(__VA_ARGS__); \
  } while (false)
