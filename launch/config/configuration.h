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

/// JSON as people write it for trainers: // and # and /* */ comments and trailing commas are
/// accepted; a key given twice in one object is not. Throws zero::Error with `source`, line and
/// column.
nlohmann::json parse_json_text(std::string_view text, std::string_view source);

/// Reads and parses a file; throws zero::Error when it cannot be read.
nlohmann::json read_json_file(const std::string& path);

/// The user's configuration: one JSON file in DeepSpeed's sections, and --set overrides. Holds a
/// value for every option of the table and its source. A value type.
class Configuration {
 public:
  struct Value {
    nlohmann::json value;
    std::string source;  ///< a file, "--set", "default", "inferred: ..."
  };

  /// Checks every key and value; throws zero::Error naming the source, the key path, what was found
  /// and expected. `overrides` are "key.path=value", applied in order.
  static Configuration read(const std::string& path, const std::vector<std::string>& overrides);
  /// The same from a parsed file; `source` names it in messages.
  static Configuration from_json(nlohmann::json tree, const std::string& source,
                                 const std::vector<std::string>& overrides);

  bool given(std::string_view path) const;  ///< by the file or an override
  bool is_null(std::string_view path) const;
  const Value& at(std::string_view path) const;
  bool boolean(std::string_view path) const;
  std::int64_t integer(std::string_view path) const;
  double number(std::string_view path) const;
  std::string text(std::string_view path) const;  ///< empty for null
  std::vector<std::string> texts(std::string_view path) const;
  /// Replaces a value the trainer works out: a missing one of the batch sizes, a default that
  /// depends on another key.
  void resolve(std::string_view path, nlohmann::json value, std::string source);

  /// One line naming the given keys that are known and change nothing here; empty if there are
  /// none.
  std::string note() const;
  /// The file it was read from.
  const std::string& source() const { return source_; }
  /// Every effective value and its source, a line each.
  std::string dump() const;
  /// The effective values alone, which must be equal on all ranks.
  std::map<std::string, std::string> effective() const;

 private:
  friend class ConfigurationReader;
  std::map<std::string, Value, std::less<>> values_;
  std::string source_;  // the file
};

}  // namespace zero
