// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf/fields.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zero {

using nlohmann::json;

HfFields::HfFields(json object, std::string file, std::string where)
    : object_(std::move(object)), file_(std::move(file)), where_(std::move(where)) {}

std::string HfFields::place(std::string_view name) const {
  return fmt::format("{}: {}{}", file_, where_, name);
}

bool HfFields::has(std::string_view name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

const json* HfFields::take(std::string_view name, bool required, std::string_view expected) {
  taken_.emplace(name);
  if (has(name)) return &*object_.find(name);
  ZERO_CHECK(!required, "{} is missing; expected {}", place(name), expected);
  return nullptr;
}

template <typename Value>
Value HfFields::value(std::string_view name, std::optional<Value> fallback,
                      std::string_view expected, bool (json::*fits)() const noexcept) {
  const json* found = take(name, !fallback, expected);
  if (found == nullptr) return *std::move(fallback);
  ZERO_CHECK((found->*fits)(), "{}: found {}, expected {}", place(name), found->dump(), expected);
  return found->get<Value>();
}

std::int64_t HfFields::integer(std::string_view name, std::optional<std::int64_t> fallback) {
  return value(name, fallback, "a whole number", &json::is_number_integer);
}

double HfFields::number(std::string_view name, std::optional<double> fallback) {
  return value(name, fallback, "a number", &json::is_number);
}

bool HfFields::flag(std::string_view name, std::optional<bool> fallback) {
  return value(name, fallback, "true or false", &json::is_boolean);
}

std::string HfFields::text(std::string_view name, std::optional<std::string> fallback) {
  return value(name, std::move(fallback), "a text", &json::is_string);
}

void HfFields::only(std::string_view name, const json& expected, std::string_view why) {
  const json* value = take(name, false, "");
  ZERO_CHECK(value == nullptr || *value == expected, "{}: found {}, expected {}: {}", place(name),
             value->dump(), expected.dump(), why);
}

HfFields HfFields::object(std::string_view name) {
  const json* value = take(name, false, "an object");
  ZERO_CHECK(value == nullptr || value->is_object(), "{}: found {}, expected an object",
             place(name), value->dump());
  return {value == nullptr ? json::object() : *value, file_, fmt::format("{}{}.", where_, name)};
}

json HfFields::raw(std::string_view name) {
  const json* value = take(name, false, "");
  return value == nullptr ? json() : *value;
}

void HfFields::finish(std::span<const std::string_view> passed_over) const {
  for (const auto& [name, value] : object_.items()) {
    const bool known = taken_.contains(name) ||
                       std::find(passed_over.begin(), passed_over.end(), name) != passed_over.end();
    if (known || value.is_null() || value == false) continue;
    fail(
        "{}: found {}, expected no field of that name: what it changes is not known here; take it "
        "out if the model does not depend on it",
        place(name), value.dump());
  }
}

}  // namespace zero
