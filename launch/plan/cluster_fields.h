// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// The members of one object of a cluster file. Errors name file, key, found and expected.
class ClusterFields {
 public:
  /// Throws zero::Error, with the nearest known key, if `object` has another key; keys that begin
  /// with an underscore are notes. `object` must outlive this.
  ClusterFields(const nlohmann::json& object, std::string source, std::string section,
                std::vector<std::string> keys);
  /// An object within this one.
  ClusterFields section(const char* key, std::vector<std::string> keys) const;

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const nlohmann::json& object(const char* key) const { return object_.at(key); }
  const std::string& source() const { return source_; }
  /// "c.json: links.within_host".
  std::string place(std::string_view key) const;
  void require(const char* key, std::string_view example) const;
  /// The text of a key that is there.
  std::string text(const char* key, std::string_view expected) const;
  int count(const char* key, int most) const;
  /// A number above 0, at most 1, if the key is there.
  void take_share(const char* key, double& share) const;
  /// A time with its unit, if the key is there.
  void take_seconds(const char* key, double& seconds) const;

 private:
  std::string joined(std::string_view key) const;

  const nlohmann::json& object_;
  std::string source_;
  std::string section_;
};

}  // namespace zero
