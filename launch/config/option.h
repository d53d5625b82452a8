// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zero {

enum class ValueType {
  boolean,
  integer,  ///< also 5e8 and 1.0, never 1.5
  number,
  text,
  text_list,  ///< a text or a list of texts
  duration,   ///< minutes, or "HH:MM:SS"
  bytes,      ///< a number, or a text such as "8GiB"
  betas,      ///< two numbers
  anything,   ///< an object or value that is not checked
};

/// How the trainer treats a key.
enum class Handling {
  honoured,         ///< takes effect
  accepted,         ///< known from DeepSpeed; cannot change results here: one log line says so
  only_default,     ///< known from DeepSpeed; any value but the default is refused with the
                    ///< reason
  unless_enabled,   ///< a section known from DeepSpeed; refused with the reason if it, or a part
                    ///< without an `enabled` of its own above, is switched on
  unless_disabled,  ///< a section known from DeepSpeed that is on where it is there; refused with
                    ///< the reason if it is not null, false or {"enabled": false}
};

/// One key of the configuration. One table of options drives reading, --help and --print-config.
struct Option {
  std::string path;  ///< "zero_optimization.stage"
  ValueType type = ValueType::anything;
  std::string fallback;  ///< the default as JSON text; empty: required; "null": may be absent
  std::string help;      ///< honoured: its effect; otherwise the reason
  Handling handling = Handling::honoured;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices{};  ///< texts that are allowed; empty: any
  std::vector<std::string> types{};    ///< optimizer or scheduler types it belongs to; empty: all
  bool from_run = false;  ///< "auto" is allowed, stored as null, and resolved for the run
  bool nullable = false;  ///< null is a value beside the default
  std::string words{};    ///< for expectation(); empty: as the members above say

  // Copies of this option with a range, choices, types, "auto", null or words, to build rows of the
  // table.
  Option from(double least, double most = std::numeric_limits<double>::infinity()) && {
    low = least;
    high = most;
    return std::move(*this);
  }
  Option one_of(std::vector<std::string> texts) && {
    choices = std::move(texts);
    return std::move(*this);
  }
  Option of(std::vector<std::string> optimizers_or_schedulers) && {
    types = std::move(optimizers_or_schedulers);
    return std::move(*this);
  }
  Option or_auto() && {
    from_run = true;
    return std::move(*this);
  }
  Option or_null() && {
    nullable = true;
    return std::move(*this);
  }
  Option expecting(std::string what) && {
    words = std::move(what);
    return std::move(*this);
  }

  bool takes_null() const { return nullable || fallback == "null"; }
  /// Null where the option must be given or is resolved for the run.
  nlohmann::json default_value() const;
};
/// An option that takes effect.
Option honour(std::string path, ValueType type, std::string fallback, std::string help);
/// Options known from DeepSpeed, one for each other Handling.
Option accept(std::string path, ValueType type, std::string fallback, std::string why);
Option only(std::string path, ValueType type, std::string fallback, std::string why);
Option unless_enabled(std::string section, std::string why);
Option unless_disabled(std::string section, std::string why);

/// Every key that the trainer knows, section by section.
const std::vector<Option>& option_table();
/// The rows of the table by section.
std::vector<Option> model_options();
std::vector<Option> trainer_options();
std::vector<Option> checkpoint_options();
std::vector<Option> mesh_options();
std::vector<Option> recompute_options();
std::vector<Option> precision_options();
std::vector<Option> optimizer_options();
std::vector<Option> scheduler_options();
std::vector<Option> zero_options();
std::vector<Option> tier_options();
std::vector<Option> fault_options();
std::vector<Option> deepspeed_options();

/// The option at `path`, or null.
const Option* find_option(std::string_view path);
/// Whether `path` is an object that holds options.
bool is_section(std::string_view path);
/// The keys directly inside a section ("" is the top level).
std::vector<std::string> keys_of_section(std::string_view section);
/// The table's name of a path for which DeepSpeed has another, older name.
std::string canonical_path(std::string_view path);
/// The values that an option accepts: "a whole number from 1", "true or false".
std::string expectation(const Option& option);
/// The table as text for --help: the keys that take effect, then those that do not.
std::string option_help();

}  // namespace zero
