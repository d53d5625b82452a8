// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/operation_rates.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"

namespace zero {
namespace {

using nlohmann::json;

constexpr std::string_view kExpected =
    "the rows of zero_bench ops --json, a profile, or a run's log with one (run.profile)";

/// The name without the sizes of a product: "linear_forward 768x2304".
std::string_view kind_of(std::string_view name) { return name.substr(0, name.find(' ')); }

std::string key_of(std::string_view dtype, std::string_view name) {
  return fmt::format("{} {}", dtype, kind_of(name));
}

double number_in(const json& row, const char* key, const std::string& place) {
  ZERO_CHECK(row.is_object() && row.contains(key) && row.at(key).is_number(),
             "{}: {}: found {}, expected a number: one of {}", place, key,
             row.is_object() && row.contains(key) ? shown_value(row.at(key)) : "nothing",
             kExpected);
  return row.at(key).get<double>();
}

std::string text_in(const json& row, const char* key, const std::string& place) {
  ZERO_CHECK(row.is_object() && row.contains(key) && row.at(key).is_string(),
             "{}: {}: found {}, expected a text: one of {}", place, key,
             row.is_object() && row.contains(key) ? shown_value(row.at(key)) : "nothing",
             kExpected);
  return row.at(key).get<std::string>();
}

/// A document, or the last line of a log that has a profile.
json parse_table(const std::string& text, const std::string& path) {
  json whole = json::parse(text, nullptr, false);
  if (!whole.is_discarded()) return whole;
  json found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const json line = json::parse(text.substr(begin, end - begin), nullptr, false);
    if (line.is_object() && line.contains("profile")) found = line;
    begin = end + 1;
  }
  ZERO_CHECK(!found.is_null(), "{}: found no line of JSON with the key profile, expected {}", path,
             kExpected);
  return found;
}

}  // namespace

OperationRates OperationRates::read(const std::string& path) {
  return of(parse_table(read_json_text(path, "operations"), path), path);
}

OperationRates OperationRates::of(const json& table, const std::string& source) {
  OperationRates rates;
  if (table.is_array()) {
    rates.add_rows(table, source);
  } else if (table.is_object() && table.contains("profile")) {
    rates.add_profile(table.at("profile"), source);
  } else {
    rates.add_profile(table, source);
  }
  ZERO_CHECK(!rates.empty(), "{}: found no rate of any operation, expected {}", source, kExpected);
  return rates;
}

void OperationRates::add_rows(const json& rows, const std::string& source) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string place = fmt::format("{}: row {}", source, i);
    if (text_in(rows[i], "section", place) != "ops") continue;
    const std::string unit = text_in(rows[i], "unit", place);
    const double per_second = number_in(rows[i], "value", place) * 1e9;
    const double bytes = number_in(rows[i], "bytes", place);
    if (bytes <= 0 || per_second <= 0 || (unit != "GFLOP/s" && unit != "GB/s")) continue;
    const std::string key =
        key_of(text_in(rows[i], "dtype", place), text_in(rows[i], "name", place));
    rates_[key][bytes] = {per_second, unit == "GFLOP/s"};
  }
}

void OperationRates::add_profile(const json& profile, const std::string& source) {
  ZERO_CHECK(profile.is_object() && profile.contains("work") && profile.at("work").is_array(),
             "{}: found {}, expected {}", source, shown_value(profile), kExpected);
  for (const json& row : profile.at("work")) {
    const std::string name = text_in(row, "name", source);
    const std::string place = fmt::format("{}: {}", source, name);
    const double seconds = number_in(row, "seconds", place);
    const double flop = number_in(row, "flop", place);
    const double bytes = number_in(row, "bytes", place);
    const double calls = number_in(row, "calls", place);
    if (seconds <= 0 || bytes <= 0 || calls <= 0) continue;
    rates_[key_of("", name)][bytes / calls] = {(flop > 0 ? flop : bytes) / seconds, flop > 0};
  }
}

std::optional<double> OperationRates::seconds(const OpCost& cost, DType dtype) const {
  auto found = rates_.find(key_of(name_of(dtype), cost.name));
  if (found == rates_.end()) found = rates_.find(key_of("", cost.name));
  if (found == rates_.end() || cost.bytes <= 0) return std::nullopt;
  const Sizes& sizes = found->second;
  const auto above = sizes.lower_bound(cost.bytes);
  const auto& [larger, high] = above == sizes.end() ? *std::prev(above) : *above;
  const auto& [smaller, low] = above == sizes.begin() ? *above : *std::prev(above);
  const auto work = [&](const Rate& rate) { return rate.of_flop ? cost.flop : cost.bytes; };
  if (work(high) <= 0 || work(low) <= 0) return std::nullopt;
  const double from = work(low) / low.per_second;
  if (smaller >= larger) return work(high) / high.per_second;
  const double share = std::log(cost.bytes / smaller) / std::log(larger / smaller);
  // Of the seconds at either rate; for one kind of rate that is the rate over the logarithm.
  return std::exp((1 - share) * std::log(from) + share * std::log(work(high) / high.per_second));
}

}  // namespace zero
