// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/option.h"

namespace zero {

class Refusals;

/// Parses JSON as people write it for trainers: comments (//, # and /* */) and trailing commas are
/// accepted; a repeated key in one object is not. Throws zero::Error with `source`, line and
/// column.
nlohmann::json parse_json_text(std::string_view text, std::string_view source);

/// The text of a JSON file that people write, which `flag` names: a regular file of at most 16 MiB.
/// Throws zero::Error naming flag, file, what was found and what is expected.
std::string read_json_text(const std::string& path, std::string_view flag);

/// Parses the file of --config; throws zero::Error also as read_json_text() does.
nlohmann::json read_json_file(const std::string& path);

/// The user's configuration: one JSON file in DeepSpeed's sections, and --set overrides. Holds a
/// value for every option of the table and its source. A value type.
class Configuration {
 public:
  struct Value {
    nlohmann::json value;
    std::string source;  ///< a file, "--set", "default", "inferred: ..."
  };

  /// Checks every key and value; throws zero::Error that names, for all that is refused, the
  /// source, the key path, the value found and the one expected. Keys that begin with _, // or #,
  /// and $schema, are remarks. `overrides` are "key.path=value", applied in
  /// order; null takes a key out of the file, unless null is one of its values.
  /// With `refusals` what is refused goes there, to be said along with what make_train_config()
  /// refuses, and a refused key has its default.
  static Configuration read(const std::string& path, const std::vector<std::string>& overrides,
                            Refusals* refusals = nullptr);
  /// The same from a parsed file; `source` names the file in messages.
  static Configuration from_json(nlohmann::json tree, const std::string& source,
                                 const std::vector<std::string>& overrides,
                                 Refusals* refusals = nullptr);

  bool given(std::string_view path) const;  ///< by the file or an override
  const Value& at(std::string_view path) const;
  bool is_null(std::string_view path) const { return at(path).value.is_null(); }
  bool boolean(std::string_view path) const { return at(path).value.get<bool>(); }
  std::int64_t integer(std::string_view path) const { return at(path).value.get<std::int64_t>(); }
  double number(std::string_view path) const { return at(path).value.get<double>(); }
  std::string text(std::string_view path) const;  ///< empty for null
  std::vector<std::string> texts(std::string_view path) const;
  /// Replaces a value that the trainer infers: a missing batch size, or a default that depends on
  /// another key.
  void resolve(std::string_view path, nlohmann::json value, std::string source);

  /// One line that lists the given keys that are accepted but have no effect here, and the remarks;
  /// empty if there are none.
  std::string note() const;
  /// `message` with each key named as the file or --set has it: "bfloat16.enabled".
  std::string as_written(std::string message) const;
  /// The file that the configuration was read from.
  const std::string& source() const { return source_; }
  /// Every effective value and its source, a line each.
  std::string dump() const;
  /// The effective values without their sources; they must be equal on all ranks.
  std::map<std::string, std::string> effective() const;

 private:
  friend class ConfigurationReader;
  std::map<std::string, Value, std::less<>> values_;
  std::string source_;                            // the file
  std::map<std::string, std::string> spellings_;  // of keys given under another name
  std::vector<std::string> remarks_;              // keys like "_comment"
};

}  // namespace zero
