// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/cluster_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/checked_value.h"
#include "launch/config/similar_names.h"
#include "launch/process/quantity.h"

namespace zero {

using nlohmann::json;

ClusterFields::ClusterFields(const json& object, std::string source, std::string section,
                             std::vector<std::string> keys)
    : object_(object), source_(std::move(source)), section_(std::move(section)) {
  ZERO_CHECK(object.is_object(), "{}: {}found {}, expected an object with the keys {}", source_,
             section_.empty() ? "" : section_ + ": ", shown_value(object), fmt::join(keys, ", "));
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(keys, key) != keys.end() || key.starts_with('_')) continue;
    const std::string near = nearest_name(key, keys);
    fail("{}: there is no key \"{}\"{}; the keys are {}", source_, printable_line(joined(key)),
         near.empty() ? "" : ": did you mean \"" + near + "\"?", fmt::join(keys, ", "));
  }
}

ClusterFields ClusterFields::section(const char* key, std::vector<std::string> keys) const {
  return {object_.at(key), source_, joined(key), std::move(keys)};
}

std::string ClusterFields::joined(std::string_view key) const {
  return section_.empty() ? std::string(key) : fmt::format("{}.{}", section_, key);
}

std::string ClusterFields::place(std::string_view key) const {
  return fmt::format("{}: {}", source_, joined(key));
}

void ClusterFields::require(const char* key, std::string_view example) const {
  ZERO_CHECK(has(key), "{} is missing, expected for example {}", place(key), example);
}

std::string ClusterFields::text(const char* key, std::string_view expected) const {
  const json& value = object_.at(key);
  ZERO_CHECK(value.is_string(), "{}: found {}, expected {}", place(key), shown_value(value),
             expected);
  return value.get<std::string>();
}

int ClusterFields::count(const char* key, int most) const {
  const json& value = object_.at(key);
  const bool fits = value.is_number_integer() && value >= 1 && value <= most;
  ZERO_CHECK(fits, "{}: found {}, expected a whole number from 1 to {}", place(key),
             shown_value(value), most);
  return value.get<int>();
}

void ClusterFields::take_share(const char* key, double& share) const {
  if (!has(key)) return;
  const json& value = object_.at(key);
  const bool fits = value.is_number() && value > 0 && value <= 1;
  ZERO_CHECK(fits, "{}: found {}, expected a number above 0, at most 1", place(key),
             shown_value(value));
  share = value.get<double>();
}

void ClusterFields::take_seconds(const char* key, double& seconds) const {
  if (!has(key)) return;
  seconds = seconds_with_unit(text(key, "a text with a unit, such as \"5us\""), place(key));
}

}  // namespace zero
