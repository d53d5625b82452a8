// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/config/answers.h"
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
  /// One member of an object: names are the table's but for `as_in_file`, the whole path as the
  /// file has it.
  struct Member {
    const std::string& section;
    const std::string& key;
    const nlohmann::json& value;
    const std::string& as_in_file;
  };
  /// A key that the file gives under two names with two values.
  struct Double {
    std::string path;
    nlohmann::json first;
    std::string message;
  };
  /// The key or section that an unknown key may stand for, and whether it is so near that an answer
  /// gives that one the value.
  struct Meant {
    std::string path{};
    bool moves = false;
  };
  nlohmann::json canonical(const nlohmann::json& object);
  void add(nlohmann::json& into, const Member& member);
  bool add_dotted(nlohmann::json& into, const std::string& name, const Member& member);
  void merge(nlohmann::json& slot, const nlohmann::json& value, const std::string& path,
             const std::string& as_in_file);
  void given_twice(const std::string& path, const nlohmann::json& first,
                   const nlohmann::json& second, const std::string& as_in_file);
  void refuse_doubles();
  void apply_override(const std::string& text);
  void put(const std::string& path, nlohmann::json value, const std::string& text);
  void walk(const nlohmann::json& object, const std::string& section);
  void check_section(const std::string& path, const nlohmann::json& value);
  void take(const Option& option, nlohmann::json value);
  nlohmann::json checked_auto(const Option& option);
  void check_handling(const Option& option, const nlohmann::json& value) const;
  void refuse_type(const std::string& section);
  std::vector<std::string> take_out_strangers(const std::string& section, const Option& type);
  std::vector<std::string> put_one_cycle(const nlohmann::json& params);
  void check_types(const char* section);
  void fill_defaults();
  void refuse_autos();
  std::string source_of(const std::string& path) const;
  bool in_file(const std::string& path) const { return source_of(path) != "--set"; }
  std::vector<std::string> answers_in_file(const std::string& path,
                                           std::vector<std::string> sets) const;
  [[noreturn]] void unknown(const std::string& path, const nlohmann::json& value);
  [[noreturn]] void called_otherwise(const std::string& path, const KeyValue& here,
                                     const nlohmann::json& value);
  std::vector<KeyValue> moved(const std::string& place, const nlohmann::json& value) const;
  static Meant meant_key(const std::string& path);
  static std::string described_keys(const std::string& path);

  nlohmann::json tree_;
  std::string source_;
  std::vector<std::string> overrides_;
  std::vector<std::string> override_paths_;
  std::vector<Double> doubles_;
  std::vector<const Option*> autos_;  // that nothing here resolves
  Refusals& refusals_;
  Configuration result_;
};

/// "section.key", or the key alone at the top level.
std::string joined_path(const std::string& section, const std::string& key);

/// Whether an option takes a value, of any Handling.
bool fits_option(const KeyValue& given);

/// Whether the Handling of `option` lets a run begin with a value of it.
bool is_offered(const Option& option, const nlohmann::json& value);

/// The key that a value in the place of its section stands for: fp16.enabled of true,
/// offload_optimizer.device of "nvme". Nothing if it asks for a default or for nothing known.
std::optional<KeyValue> member_meant(const std::string& section, const nlohmann::json& value);

}  // namespace zero
