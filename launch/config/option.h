// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

enum class ValueType {
  boolean,
  integer,  ///< also 5e8 and 1.0, never 1.5
  number,
  text,
  text_list,  ///< a text or a list of texts
  betas,      ///< two numbers
  anything,   ///< an object or value whose content is not looked at
};

/// How the trainer treats a key.
enum class Handling {
  honoured,        ///< takes effect
  accepted,        ///< known from DeepSpeed; cannot change results here: one log line says so
  only_default,    ///< known from DeepSpeed; another value than the default is refused with the
                   ///< reason
  unless_enabled,  ///< a section known from DeepSpeed: refused with the reason when it says
                   ///< `enabled`
};

/// One key of the configuration. The one table of these drives reading, --help and --print-config.
struct Option {
  std::string path;  ///< "zero_optimization.stage"
  ValueType type = ValueType::anything;
  std::string fallback;  ///< the default as JSON text; empty: must be given; "null": may be absent
  std::string help;      ///< honoured: its effect; otherwise the reason
  Handling handling = Handling::honoured;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices{};  ///< texts that are allowed; empty: any
  std::vector<std::string> types{};    ///< optimizer or scheduler types it belongs to; empty: all
  bool from_machine = false;  ///< "auto" is allowed, kept as null, and worked out from the machine

  // This option with a range, choices, types, or "auto": for rows of the table.
  Option from(double least, double most = std::numeric_limits<double>::infinity()) &&;
  Option one_of(std::vector<std::string> texts) &&;
  Option of(std::vector<std::string> optimizers_or_schedulers) &&;
  Option or_from_machine() &&;
};
/// An option that takes effect.
Option honour(std::string path, ValueType type, std::string fallback, std::string help);
/// Options known from DeepSpeed, one for each other Handling.
Option accept(std::string path, ValueType type, std::string fallback, std::string why);
Option only(std::string path, ValueType type, std::string fallback, std::string why);
Option unless_enabled(std::string section, std::string why);

/// Every key the trainer knows, section by section.
const std::vector<Option>& option_table();
/// Parts of the table.
std::vector<Option> model_options();
std::vector<Option> trainer_options();
std::vector<Option> mesh_options();
std::vector<Option> optimizer_options();
std::vector<Option> zero_options();
std::vector<Option> deepspeed_options();

/// The option of `path`, or null.
const Option* find_option(std::string_view path);
/// Whether `path` is an object that holds options.
bool is_section(std::string_view path);
/// The keys directly inside a section ("" is the top level).
std::vector<std::string> keys_of_section(std::string_view section);
/// The name the table uses for a path that DeepSpeed has another, older name for.
std::string canonical_path(std::string_view path);
/// The values that an option takes: "a whole number from 1", "true or false".
std::string expectation(const Option& option);
/// The table as text for --help: the keys that take effect, then those that do not.
std::string option_help();

}  // namespace zero
