// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/config/configuration.h"
#include "launch/config/option.h"

namespace zero {

/// Turns a parsed file and overrides into a Configuration, checking each key and value against the
/// option table.
class ConfigurationReader {
 public:
  ConfigurationReader(nlohmann::json tree, std::string source, std::vector<std::string> overrides);
  Configuration read();

 private:
  void apply_override(const std::string& text);
  void walk(const nlohmann::json& object, const std::string& section);
  void take(const Option& option, nlohmann::json value);
  nlohmann::json checked(const Option& option, const nlohmann::json& value) const;
  nlohmann::json checked_number(const Option& option, const nlohmann::json& value) const;
  nlohmann::json checked_auto(const Option& option) const;
  void check_handling(const Option& option, const nlohmann::json& value) const;
  void check_types(const char* section) const;
  void fill_defaults();
  std::string source_of(const std::string& path) const;
  [[noreturn]] void unknown(const std::string& path) const;
  [[noreturn]] void mismatch(const Option& option, const nlohmann::json& value) const;

  nlohmann::json tree_;
  std::string source_;
  std::vector<std::string> overrides_;
  std::vector<std::string> override_paths_;
  Configuration result_;
};

}  // namespace zero
