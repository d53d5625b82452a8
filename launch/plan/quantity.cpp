// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

struct NamedUnit {
  std::string_view name;
  double size;
};
constexpr std::array kByteUnits{
    NamedUnit{"B", 1},          NamedUnit{"kB", 1e3},       NamedUnit{"MB", 1e6},
    NamedUnit{"GB", 1e9},       NamedUnit{"TB", 1e12},      NamedUnit{"KiB", 1024.0},
    NamedUnit{"MiB", 0x1.0p20}, NamedUnit{"GiB", 0x1.0p30}, NamedUnit{"TiB", 0x1.0p40}};
constexpr std::array kLinkUnits{NamedUnit{"MB/s", 1e6},       NamedUnit{"GB/s", 1e9},
                                NamedUnit{"TB/s", 1e12},      NamedUnit{"MiB/s", 0x1.0p20},
                                NamedUnit{"GiB/s", 0x1.0p30}, NamedUnit{"Mbit/s", 1e6 / 8},
                                NamedUnit{"Gbit/s", 1e9 / 8}, NamedUnit{"Tbit/s", 1e12 / 8}};
constexpr std::array kComputeUnits{NamedUnit{"GFLOP/s", 1e9}, NamedUnit{"TFLOP/s", 1e12},
                                   NamedUnit{"PFLOP/s", 1e15}};

/// What a text may be, for messages.
struct UnitsOfFigure {
  std::span<const NamedUnit> units;
  std::string_view example;
};

std::string expected_figure(const UnitsOfFigure& kind) {
  std::string names;
  for (const NamedUnit& unit : kind.units) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", unit.name);
  }
  return fmt::format("a number above 0 and one of the units {}, such as \"{}\"", names,
                     kind.example);
}

std::optional<double> number_before_unit(std::string_view text, std::size_t& end) {
  double value = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  end = static_cast<std::size_t>(rest - text.data());
  if (error != std::errc() || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

double figure(std::string_view text, std::string_view place, const UnitsOfFigure& kind) {
  std::size_t end = 0;
  const std::optional<double> value = number_before_unit(text, end);
  std::string_view unit = text.substr(std::min(end, text.size()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const std::string found = printable_line(std::string(text));
  ZERO_CHECK(!value || !unit.empty(), "{}: found \"{}\" without a unit, expected {}", place, found,
             expected_figure(kind));
  const auto known = std::ranges::find(kind.units, unit, &NamedUnit::name);
  ZERO_CHECK(value && known != kind.units.end(), "{}: found \"{}\", expected {}", place, found,
             expected_figure(kind));
  return *value * known->size;
}

}  // namespace

std::int64_t bytes_with_unit(std::string_view text, std::string_view place) {
  const double bytes = figure(text, place, {kByteUnits, "80GB"});
  ZERO_CHECK(bytes >= 1 && bytes <= 0x1.0p60, "{}: found \"{}\", expected 1 B to 2^60 B", place,
             printable_line(std::string(text)));
  return static_cast<std::int64_t>(bytes);
}

double link_rate(std::string_view text, std::string_view place) {
  return figure(text, place, {kLinkUnits, "450GB/s"});
}

double compute_rate(std::string_view text, std::string_view place) {
  return figure(text, place, {kComputeUnits, "400TFLOP/s"});
}

std::string decimal_text(double bytes) {
  constexpr std::array<const char*, 5> kNames{"B", "kB", "MB", "GB", "TB"};
  std::size_t at = 0;
  for (; std::abs(bytes) >= 1000 && at + 1 < kNames.size(); ++at) bytes /= 1000;
  return at == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kNames[at]);
}

std::string both_units(double bytes) {
  return fmt::format("{} ({})", decimal_text(bytes), bytes_text(bytes));
}

}  // namespace zero
