// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/operation_rates.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/error.h"
#include "launch/config/configuration.h"
#include "launch/telemetry/json_lines.h"

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

}  // namespace

OperationRates OperationRates::read(const std::string& path) {
  json table = json::parse(read_json_text(path, "operations"), nullptr, false);
  if (table.is_discarded()) {  // a log: its last profile
    read_json_lines(path, [&](JsonFields& line) {
      if (line.has("profile")) table = line.raw("profile");
      return true;
    });
  }
  return of(table, path);
}

OperationRates OperationRates::of(const json& table, const std::string& source) {
  OperationRates rates;
  if (table.is_array()) {
    rates.add_rows(JsonFields::of(source, json::object({{"rows", table}})).objects("rows"));
  } else if (table.is_object()) {
    JsonFields fields = JsonFields::of(source, table);
    if (fields.has("profile")) fields = fields.object("profile");
    if (fields.has("work")) rates.add_profile(fields.objects("work"));
  }
  ZERO_CHECK(!rates.empty(), "{}: found no rate of any operation, expected {}", source, kExpected);
  return rates;
}

void OperationRates::add_rows(std::vector<JsonFields> rows) {
  for (JsonFields& row : rows) {
    if (row.text("section") != "ops") continue;
    const std::string unit = row.text("unit");
    const double per_second = row.number("value") * 1e9;
    const double bytes = row.number("bytes");
    if (bytes <= 0 || per_second <= 0 || (unit != "GFLOP/s" && unit != "GB/s")) continue;
    rates_[key_of(row.text("dtype"), row.text("name"))][bytes] = {per_second, unit == "GFLOP/s"};
  }
}

void OperationRates::add_profile(std::vector<JsonFields> work) {
  for (JsonFields& row : work) {
    const double seconds = row.number("seconds");
    const double flop = row.number("flop");
    const double bytes = row.number("bytes");
    const double calls = row.number("calls");
    if (seconds <= 0 || bytes <= 0 || calls <= 0) continue;
    rates_[key_of("", row.text("name"))][bytes / calls] = {(flop > 0 ? flop : bytes) / seconds,
                                                           flop > 0};
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
