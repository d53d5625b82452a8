// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/config/configuration.h"
#include "launch/config/refusals.h"

namespace zero {

/// Turns a parsed file and overrides into a Configuration, checking each key and value against the
/// option table.
class ConfigurationReader {
 public:
  /// `refusals` must outlive the reader.
  ConfigurationReader(nlohmann::json tree, std::string source, std::vector<std::string> overrides,
                      Refusals& refusals);
  /// What is refused has its default, or the value that the answer to its refusal gives.
  Configuration read();

 private:
  nlohmann::json canonical(const nlohmann::json& object, const std::string& section,
                           const std::string& written);
  void apply_override(const std::string& text);
  void put(const std::string& path, nlohmann::json value, const std::string& text);
  void walk(const nlohmann::json& object, const std::string& section);
  void check_section(const std::string& path, const nlohmann::json& value) const;
  void take(const Option& option, nlohmann::json value);
  nlohmann::json checked_auto(const Option& option);
  void check_handling(const Option& option, const nlohmann::json& value) const;
  void refuse_type(const std::string& section);
  std::vector<std::string> take_out_strangers(const std::string& section, const Option& type);
  void check_types(const char* section);
  void fill_defaults();
  void refuse_autos();
  std::string source_of(const std::string& path) const;
  bool in_file(const std::string& path) const { return source_of(path) != "--set"; }
  std::vector<std::string> answers_in_file(const std::string& path,
                                           std::vector<std::string> sets) const;
  [[noreturn]] void unknown(const std::string& path, const nlohmann::json& value) const;
  [[noreturn]] void called_otherwise(const std::string& path, const Option& option,
                                     const nlohmann::json& value) const;
  std::string described_unknown(const std::string& path) const;

  nlohmann::json tree_;
  std::string source_;
  std::vector<std::string> overrides_;
  std::vector<std::string> override_paths_;
  std::vector<const Option*> autos_;  // that nothing here resolves
  Refusals& refusals_;
  Configuration result_;
};

/// "section.key", or the key alone at the top level.
std::string joined_path(const std::string& section, const std::string& key);

}  // namespace zero
