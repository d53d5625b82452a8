// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/json_fields.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/json_tree.h"
#include "base/message_text.h"

namespace zero {

using nlohmann::json;

JsonFields::JsonFields(json object, std::string file, std::string where)
    : JsonFields(std::make_shared<const json>(std::move(object)), std::move(file),
                 std::move(where)) {}

JsonFields JsonFields::parse(const std::string& file, std::string_view text) {
  std::optional<json> tree = parse_json_tree(text);
  if (tree) return of(file, *std::move(tree));
  const std::string what = read_json(text).what;  // "[json.exception...] parse error at line ..."
  constexpr std::size_t kMostShown = 200;
  const std::size_t begin = what.find("] ");
  fail("{}: is not a JSON object of at most {} levels{}", file, kDeepestTree,
       begin == what.npos ? "" : ": " + printable_line(what.substr(begin + 2), kMostShown));
}

JsonFields JsonFields::of(const std::string& file, json tree) {
  ZERO_CHECK(tree.is_object(), "{}: is not a JSON object of at most {} levels", file, kDeepestTree);
  return {std::move(tree), file, ""};
}

std::string JsonFields::place(std::string_view name) const {
  return fmt::format("{}: {}", file_, printable_line(fmt::format("{}{}", where_, name)));
}

bool JsonFields::has(std::string_view name) const {
  const auto found = object_->find(name);
  return found != object_->end() && !found->is_null();
}

const json* JsonFields::take(std::string_view name, bool required, std::string_view expected) {
  taken_.emplace(name);
  if (has(name)) return &*object_->find(name);
  ZERO_CHECK(!required, "{} is missing; expected {}", place(name), expected);
  return nullptr;
}

template <typename Value>
Value JsonFields::value(std::string_view name, std::optional<Value> fallback,
                        std::string_view expected, bool (json::*fits)() const noexcept) {
  const json* found = take(name, !fallback, expected);
  if (found == nullptr) return *std::move(fallback);
  if (!(found->*fits)()) refuse_value(name, *found, expected);
  return found->get<Value>();
}

std::int64_t JsonFields::integer(std::string_view name, std::optional<std::int64_t> fallback) {
  const json* found = take(name, !fallback, "a whole number");
  if (found == nullptr) return *fallback;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const bool fits = found->is_number_unsigned() ? found->get<std::uint64_t>() <= kMost
                                                : found->is_number_integer();
  if (!fits) refuse_value(name, *found, fmt::format("a whole number of at most {}", kMost));
  return found->get<std::int64_t>();
}

std::int64_t JsonFields::count(std::string_view name) {
  return whole<std::int64_t>(name, *take(name, true, "a whole number from 0"));
}

double JsonFields::number(std::string_view name, std::optional<double> fallback) {
  return value(name, fallback, "a number", &json::is_number);
}

bool JsonFields::flag(std::string_view name, std::optional<bool> fallback) {
  return value(name, fallback, "true or false", &json::is_boolean);
}

std::string JsonFields::text(std::string_view name, std::optional<std::string> fallback) {
  return value(name, std::move(fallback), "a text", &json::is_string);
}

void JsonFields::only(std::string_view name, const json& expected, std::string_view why) {
  const json* value = take(name, false, "");
  ZERO_CHECK(value == nullptr || *value == expected, "{}: found {}, expected {}: {}", place(name),
             value->dump(), expected.dump(), why);
}

JsonFields JsonFields::object(std::string_view name) {
  const json* value = take(name, false, "an object");
  if (value != nullptr && !value->is_object()) refuse_value(name, *value, "an object");
  Object object =
      value == nullptr ? std::make_shared<const json>(json::object()) : Object(object_, value);
  return {std::move(object), file_, fmt::format("{}{}.", where_, name)};
}

const json& JsonFields::raw(std::string_view name) {
  static const json absent;
  const json* value = take(name, false, "");
  return value == nullptr ? absent : *value;
}

const json& JsonFields::list(std::string_view name, std::string_view expected) {
  const json& value = *take(name, true, expected);
  if (!value.is_array()) refuse_value(name, value, expected);
  return value;
}

std::vector<JsonFields> JsonFields::objects(std::string_view name) {
  std::vector<JsonFields> all;
  for (const json& item : list(name)) {
    const std::string item_name = fmt::format("{}[{}]", name, all.size());
    if (!item.is_object()) refuse_value(item_name, item, "an object");
    all.push_back(JsonFields(Object(object_, &item), file_, where_ + item_name + "."));
  }
  return all;
}

std::vector<std::string> JsonFields::texts(std::string_view name) {
  std::vector<std::string> all;
  for (const json& item : list(name, "a list of texts")) {
    if (!item.is_string()) refuse_value(name, item, "a text");
    all.push_back(item.get<std::string>());
  }
  return all;
}

void JsonFields::exactly(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : object_->items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      refuse(name, "unknown field, expected {}", fmt::join(names, ", "));
    }
  }
  for (const std::string_view name : names) {
    ZERO_CHECK(lists(name), "{} is missing; expected {}", place(name), fmt::join(names, ", "));
  }
}

void JsonFields::refuse_value(std::string_view name, const json& found,
                              std::string_view expected) const {
  refuse(name, "found {}, expected {}",
         printable_line(found.dump(-1, ' ', false, json::error_handler_t::replace)), expected);
}

void JsonFields::finish(std::span<const std::string_view> passed_over) const {
  constexpr std::size_t kShown = 60;  // characters of a value
  constexpr int kListed = 50;         // fields
  std::string unknown;
  int count = 0;
  for (const auto& [name, value] : object_->items()) {
    const bool known = was_read(name) ||
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
