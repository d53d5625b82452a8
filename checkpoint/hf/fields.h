// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace zero {

/// The fields of one object of a config.json, taken one by one; null counts as absent. Throws
/// zero::Error naming file, field, found and expected.
class HfFields {
 public:
  /// `where` is the object's place in the file: "" or "rope_parameters.".
  HfFields(nlohmann::json object, std::string file, std::string where);

  bool has(std::string_view name) const;
  /// Without a `fallback` the field is required.
  std::int64_t integer(std::string_view name, std::optional<std::int64_t> fallback = {});
  double number(std::string_view name, std::optional<double> fallback = {});
  /// Throws, with the reason `why`, if the field is present with another value than `expected`.
  void only(std::string_view name, const nlohmann::json& expected, std::string_view why);
  bool flag(std::string_view name, std::optional<bool> fallback = {});
  std::string text(std::string_view name, std::optional<std::string> fallback = {});
  /// The field as an object of its own; empty if it is absent.
  HfFields object(std::string_view name);
  /// The field's JSON value; null if the field is absent.
  nlohmann::json raw(std::string_view name);

  /// Throws unless every field that is neither null nor false was taken or is in `passed_over`.
  void finish(std::span<const std::string_view> passed_over) const;
  /// "FILE: field"
  std::string place(std::string_view name) const;

 private:
  const nlohmann::json* take(std::string_view name, bool required, std::string_view expected);
  /// The field's value, or `fallback` if absent. Throws, with `expected`, unless `fits` accepts it.
  template <typename Value>
  Value value(std::string_view name, std::optional<Value> fallback, std::string_view expected,
              bool (nlohmann::json::*fits)() const noexcept);

  nlohmann::json object_;
  std::string file_;
  std::string where_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace zero
