// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/similar_names.h"

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

constexpr std::array kTimeUnits{NamedUnit{"ns", 1e-9}, NamedUnit{"us", 1e-6}, NamedUnit{"ms", 1e-3},
                                NamedUnit{"s", 1},     NamedUnit{"min", 60},  NamedUnit{"h", 3600},
                                NamedUnit{"d", 86400}};

/// What a text may be, for messages.
struct UnitsOfFigure {
  std::span<const NamedUnit> units;
  std::string_view example;
};

constexpr UnitsOfFigure kBytes{kByteUnits, "80GB"};

std::string listed_units(std::span<const NamedUnit> units) {
  std::string names;
  for (const NamedUnit& unit : units) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", unit.name);
  }
  return names;
}

/// A text's number, if it begins with one above 0, and its unit.
struct SplitFigure {
  std::optional<double> value{};
  std::string_view unit;
};

SplitFigure split_figure(std::string_view text) {
  double value = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  SplitFigure split{.unit = text.substr(static_cast<std::size_t>(rest - text.data()))};
  while (split.unit.starts_with(' ')) split.unit.remove_prefix(1);
  if (error == std::errc() && std::isfinite(value) && value > 0) split.value = value;
  return split;
}

std::optional<double> figure_in(std::string_view text, std::span<const NamedUnit> units) {
  const auto [value, unit] = split_figure(text);
  const auto known = std::ranges::find(units, unit, &NamedUnit::name);
  if (!value || known == units.end()) return std::nullopt;
  const double figure = *value * known->size;
  if (!std::isfinite(figure)) return std::nullopt;
  return figure;
}

double figure(std::string_view text, std::string_view place, const UnitsOfFigure& kind) {
  if (const auto known = figure_in(text, kind.units)) return *known;
  const auto [value, unit] = split_figure(text);
  std::string problem = value && unit.empty() ? " without a unit" : "";
  for (const NamedUnit& each : kind.units) {
    if (value && same_letters(unit, each.name)) {
      problem = fmt::format(" (did you mean {}?)", each.name);
    }
  }
  throw Error(fmt::format(
      "{}: found \"{}\"{}, expected a number above 0 and one of the units {}, such as \"{}\"",
      place, printable_line(text), problem, listed_units(kind.units), kind.example));
}

/// In the largest unit, of `step` times the one before, that the bytes are at least one of.
std::string scaled_text(double bytes, double step, const std::array<const char*, 5>& units) {
  std::size_t at = 0;
  for (; std::abs(bytes) >= step && at + 1 < units.size(); ++at) bytes /= step;
  return at == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[at]);
}

}  // namespace

std::string byte_units() { return listed_units(kByteUnits); }

std::optional<std::int64_t> size_in_bytes(std::string_view text) {
  const std::optional<double> bytes = figure_in(text, kByteUnits);
  if (!bytes || *bytes < 1 || *bytes > 0x1.0p60) return std::nullopt;
  return static_cast<std::int64_t>(*bytes);
}

std::int64_t bytes_with_unit(std::string_view text, std::string_view place) {
  if (const auto bytes = size_in_bytes(text)) return *bytes;
  figure(text, place, kBytes);
  throw Error(fmt::format("{}: found \"{}\", expected 1 B to 2^60 B", place, printable_line(text)));
}

std::int64_t bytes_or_none(std::string_view text, std::string_view place) {
  const auto [value, unit] = split_figure(text);
  const bool zero = !value && text.starts_with('0');
  if (zero && std::ranges::count(kByteUnits, unit, &NamedUnit::name) > 0) return 0;
  return bytes_with_unit(text, place);
}

double link_rate(std::string_view text, std::string_view place) {
  return figure(text, place, {kLinkUnits, "450GB/s"});
}

double compute_rate(std::string_view text, std::string_view place) {
  return figure(text, place, {kComputeUnits, "400TFLOP/s"});
}

double seconds_with_unit(std::string_view text, std::string_view place) {
  return figure(text, place, {kTimeUnits, "5us"});
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(0.0, std::min(seconds, 1e12))));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole % 86400 / 3600);
}

std::string bytes_text(double bytes) {
  return scaled_text(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string count_text(double count) {
  if (count < 1e3) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.1f}k", count / 1e3);
  constexpr std::string_view kPrefixes = "MGTPE";
  std::size_t at = 0;
  for (count /= 1e6; count >= 1e3 && at + 1 < kPrefixes.size(); ++at) count /= 1e3;
  return fmt::format("{:.2f}{}", count, kPrefixes[at]);
}

std::string decimal_text(double bytes) {
  return scaled_text(bytes, 1000, {"B", "kB", "MB", "GB", "TB"});
}

std::string both_units(double bytes) {
  return fmt::format("{} ({})", decimal_text(bytes), bytes_text(bytes));
}

}  // namespace zero
