// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace zero::cuda {
namespace {

/// has_code_for() of one architecture.
bool runs_on(std::string_view architecture, Capability gpu) {
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto [stop, error] = std::from_chars(architecture.data(), end, number);
  std::string_view ending(stop, static_cast<std::size_t>(end - stop));
  if (error != std::errc{}) return true;  // "native"
  const Capability built{.major = number / 10, .minor = number % 10};
  const bool same_major = gpu.major == built.major;
  const bool later_minor = same_major && gpu.minor >= built.minor;
  if (ending.starts_with('a')) return same_major && gpu.minor == built.minor;
  if (ending.starts_with('f') || ending == "-real") return later_minor;
  return later_minor || gpu.major > built.major;
}

}  // namespace

bool has_code_for(std::string_view architectures, Capability gpu) {
  while (!architectures.empty()) {
    const std::string_view first = architectures.substr(0, architectures.find_first_of(";, "));
    if (!first.empty() && runs_on(first, gpu)) return true;
    architectures.remove_prefix(std::min(first.size() + 1, architectures.size()));
  }
  return false;
}

std::string architecture_of(Capability gpu) {
  return fmt::format("{}{}-real", gpu.major, gpu.minor);
}

}  // namespace zero::cuda
