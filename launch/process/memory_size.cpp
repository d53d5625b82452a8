// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/memory_size.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 4> kMemoryUnits{
    {{"GB", 1e9}, {"GiB", 0x1p30}, {"MB", 1e6}, {"MiB", 0x1p20}}};

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string problem_of(std::string_view unit) {
  if (unit.empty()) return "has no unit";
  for (const auto& [name, bytes] : kMemoryUnits) {
    if (same_letters(unit, name)) return fmt::format("did you mean {}?", name);
  }
  return fmt::format("has the unit {}", printable_line(unit));
}

}  // namespace

std::int64_t memory_size(std::string_view text, std::string_view option) {
  constexpr double kMost = 0x1p60;
  double count = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, count, std::chars_format::fixed);
  ZERO_CHECK(error == std::errc{} && count > 0,
             "{} {}: is no size of memory; expected a number above 0 with a unit, such as 8GiB",
             option, printable_line(text));
  std::string_view unit(end, static_cast<std::size_t>(last - end));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  const auto* const found =
      std::ranges::find(kMemoryUnits, unit, &std::pair<std::string_view, double>::first);
  ZERO_CHECK(
      found != kMemoryUnits.end(),
      "{} {}: {}; expected GB or MB (10^9 or 10^6 bytes), GiB or MiB (2^30 or 2^20), such as "
      "8GiB",
      option, printable_line(text), problem_of(unit));
  const double bytes = count * found->second;
  ZERO_CHECK(bytes >= 1 && bytes <= kMost, "{} {}: expected 1 byte to 2^60", option,
             printable_line(text));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace zero
