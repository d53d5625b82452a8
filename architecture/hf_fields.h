// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace zero {

/// The fields of one JSON object of a file (Hugging Face's, or a section of a configuration), taken
/// one by one; null counts as absent.
/// Throws zero::Error naming file, field, found and expected.
class HfFields {
 public:
  /// `where` is the object's place in the file: "" or "rope_parameters.".
  HfFields(nlohmann::json object, std::string file, std::string where);
  /// Those of a JSON file's text. Throws zero::Error naming the file if it is not an object.
  static HfFields parse(const std::string& file, std::string_view text);

  bool has(std::string_view name) const;
  /// Whether the file names the field, as null too.
  bool lists(std::string_view name) const { return object_->contains(name); }
  /// Without a `fallback` the field is required.
  std::int64_t integer(std::string_view name, std::optional<std::int64_t> fallback = {});
  double number(std::string_view name, std::optional<double> fallback = {});
  /// Throws, with the reason `why`, if the field is present with another value than `expected`.
  void only(std::string_view name, const nlohmann::json& expected, std::string_view why);
  bool flag(std::string_view name, std::optional<bool> fallback = {});
  std::string text(std::string_view name, std::optional<std::string> fallback = {});
  /// The field as an object of its own, whose values are not copied; empty if it is absent.
  HfFields object(std::string_view name);
  /// The field's JSON value, which lives as long as fields of the file do; null if it is absent.
  const nlohmann::json& raw(std::string_view name);

  /// Throws, naming all others, unless every field that is neither null, false nor empty was taken
  /// or is in `passed_over`.
  void finish(std::span<const std::string_view> passed_over) const;
  /// "FILE: field"
  std::string place(std::string_view name) const;

 private:
  using Object = std::shared_ptr<const nlohmann::json>;
  HfFields(Object object, std::string file, std::string where)
      : object_(std::move(object)), file_(std::move(file)), where_(std::move(where)) {}
  const nlohmann::json* take(std::string_view name, bool required, std::string_view expected);
  /// The field's value, or `fallback` if absent. Throws, with `expected`, unless `fits` accepts it.
  template <typename Value>
  Value value(std::string_view name, std::optional<Value> fallback, std::string_view expected,
              bool (nlohmann::json::*fits)() const noexcept);

  Object object_;  // of its file's tree, which it keeps
  std::string file_;
  std::string where_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace zero
