// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/hf_fields.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/printable.h"

namespace zero {

using nlohmann::json;

HfFields::HfFields(json object, std::string file, std::string where)
    : HfFields(std::make_shared<const json>(std::move(object)), std::move(file), std::move(where)) {
}

HfFields HfFields::parse(const std::string& file, std::string_view text) {
  std::optional<json> tree = parse_json_tree(text);
  ZERO_CHECK(tree && tree->is_object(), "{}: is not a JSON object of at most {} levels", file,
             kDeepestTree);
  return {*std::move(tree), file, ""};
}

std::string HfFields::place(std::string_view name) const {
  return fmt::format("{}: {}", file_, printable_line(fmt::format("{}{}", where_, name)));
}

bool HfFields::has(std::string_view name) const {
  const auto found = object_->find(name);
  return found != object_->end() && !found->is_null();
}

const json* HfFields::take(std::string_view name, bool required, std::string_view expected) {
  taken_.emplace(name);
  if (has(name)) return &*object_->find(name);
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
  const json* found = take(name, !fallback, "a whole number");
  if (found == nullptr) return *fallback;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const bool fits = found->is_number_unsigned() ? found->get<std::uint64_t>() <= kMost
                                                : found->is_number_integer();
  ZERO_CHECK(fits, "{}: found {}, expected a whole number of at most {}", place(name),
             found->dump(), kMost);
  return found->get<std::int64_t>();
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
  Object object =
      value == nullptr ? std::make_shared<const json>(json::object()) : Object(object_, value);
  return {std::move(object), file_, fmt::format("{}{}.", where_, name)};
}

const json& HfFields::raw(std::string_view name) {
  static const json absent;
  const json* value = take(name, false, "");
  return value == nullptr ? absent : *value;
}

void HfFields::finish(std::span<const std::string_view> passed_over) const {
  constexpr std::size_t kShown = 60;  // characters of a value
  constexpr int kListed = 50;         // fields
  std::string unknown;
  int count = 0;
  for (const auto& [name, value] : object_->items()) {
    const bool known = taken_.contains(name) ||
                       std::find(passed_over.begin(), passed_over.end(), name) != passed_over.end();
    const bool empty = value.is_null() || value == false || value == "" ||
                       (value.is_structured() && value.empty());
    if (known || empty || ++count > kListed) continue;
    const std::string text = value.dump();
    unknown += fmt::format("{}{}{}: found {}", count == 1 ? "" : "; ", where_, printable_line(name),
                           printable_line(text.size() <= kShown ? text : text.substr(0, kShown)));
    if (text.size() > kShown) unknown += "...";
  }
  if (count > kListed) unknown += fmt::format("; and {} others", count - kListed);
  ZERO_CHECK(count == 0,
             "{}: {}, expected no {}: what {} not known here; take {} out if the model does not "
             "depend on {}",
             file_, unknown, count == 1 ? "field of that name" : "fields of these names",
             count == 1 ? "it changes is" : "they change is", count == 1 ? "it" : "those",
             count == 1 ? "it" : "them");
}

}  // namespace zero
