// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zero {

/// The fields of one JSON object of a file, taken one by one; null counts as absent.
/// Throws zero::Error naming file, field, found and expected.
class JsonFields {
 public:
  /// `file` names the text in messages; `where` is the object's place in it: "" or
  /// "rope_parameters.".
  JsonFields(nlohmann::json object, std::string file, std::string where);
  /// The fields of a JSON file's text. Throws zero::Error naming the file if it is not an object.
  static JsonFields parse(const std::string& file, std::string_view text);
  /// Likewise of its `tree`, null if the text has none.
  static JsonFields of(const std::string& file, nlohmann::json tree);

  bool has(std::string_view name) const;
  /// Whether the file names the field, as null too.
  bool lists(std::string_view name) const { return object_->contains(name); }
  /// Whether the field's value was asked for.
  bool was_read(std::string_view name) const { return taken_.contains(name); }
  /// Without a `fallback` the field is required.
  std::int64_t integer(std::string_view name, std::optional<std::int64_t> fallback = {});
  /// A whole number from 0.
  std::int64_t count(std::string_view name);
  template <typename Unsigned>
  Unsigned unsigned_integer(std::string_view name, std::optional<Unsigned> fallback = {}) {
    const nlohmann::json* found = take(name, !fallback, "a whole number from 0");
    return found == nullptr ? *fallback : whole<Unsigned>(name, *found);
  }
  double number(std::string_view name, std::optional<double> fallback = {});
  /// Throws, with the reason `why`, if the field is present with another value than `expected`.
  void only(std::string_view name, const nlohmann::json& expected, std::string_view why);
  bool flag(std::string_view name, std::optional<bool> fallback = {});
  std::string text(std::string_view name, std::optional<std::string> fallback = {});
  /// The field as an object of its own, whose values are not copied; empty if it is absent.
  JsonFields object(std::string_view name);
  /// The field's JSON value, which lives as long as fields of the file do; null if it is absent.
  const nlohmann::json& raw(std::string_view name);
  /// A required list; the functions below it also require its kind of value.
  const nlohmann::json& list(std::string_view name, std::string_view expected = "a list");
  std::vector<JsonFields> objects(std::string_view name);
  std::vector<std::string> texts(std::string_view name);
  template <typename Integer>
  std::vector<Integer> whole_numbers(std::string_view name) {
    std::vector<Integer> all;
    for (const auto& item : list(name)) all.push_back(whole<Integer>(name, item));
    return all;
  }

  /// Throws unless the object has these fields and no other.
  void exactly(std::initializer_list<std::string_view> names) const;
  /// Throws, naming all others, unless every field that is neither null, false nor empty was taken
  /// or is in `passed_over`.
  void finish(std::span<const std::string_view> passed_over) const;
  /// "FILE: field"
  std::string place(std::string_view name) const;
  /// Throws the message behind the field's place.
  template <typename... Args>
  [[noreturn]] void refuse(std::string_view name, fmt::format_string<Args...> format,
                           Args&&... args) const {
    fail("{}: {}", place(name), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  using Object = std::shared_ptr<const nlohmann::json>;
  JsonFields(Object object, std::string file, std::string where)
      : object_(std::move(object)), file_(std::move(file)), where_(std::move(where)) {}
  const nlohmann::json* take(std::string_view name, bool required, std::string_view expected);
  [[noreturn]] void refuse_value(std::string_view name, const nlohmann::json& found,
                                 std::string_view expected) const;
  /// The field's value, or `fallback` if absent. Throws, with `expected`, unless `fits` accepts it.
  template <typename Value>
  Value value(std::string_view name, std::optional<Value> fallback, std::string_view expected,
              bool (nlohmann::json::*fits)() const noexcept);
  template <typename Integer>
  Integer whole(std::string_view name, const nlohmann::json& found) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<Integer>::max());
    if (!found.is_number_unsigned() || found.get<std::uint64_t>() > kMost) {
      refuse_value(name, found, fmt::format("a whole number from 0 to {}", kMost));
    }
    return found.get<Integer>();
  }

  Object object_;  // part of its file's tree, which it keeps alive
  std::string file_;
  std::string where_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace zero
