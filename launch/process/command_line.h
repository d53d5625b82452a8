// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Included by programs alone, which link CLI11.
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/config/similar_names.h"
#include "launch/process/cpu_limit.h"
#include "launch/process/exit_status.h"
#include "launch/process/process.h"
#include "launch/telemetry/output.h"

namespace zero {

/// Parses the command line. Returns the text that --help or --version asks for, which the program
/// print()s in place of its work: CLI11's own exit() does not notice a full disk. Nothing: the
/// program goes on. Throws CLI::ParseError.
inline std::optional<std::string> parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app.exit(success, text, text);
    return text.str();
  }
}

/// The flags of a command line's program and of its commands that are given, or, for a word that is
/// no flag, the names of all commands.
inline std::vector<std::string> known_words(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  if (!word.starts_with('-')) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(command->get_name());
    }
    return known;
  }
  std::vector<const CLI::App*> all{&app};
  for (const CLI::App* command : app.get_subcommands()) all.push_back(command);
  for (const CLI::App* each : all) {
    for (const CLI::Option* option : each->get_options()) {
      if (option->get_group().empty()) continue;  // only there to be refused
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  }
  return known;
}

/// The one of `commands` that is short for `word`: its letters stand there in order, the first at
/// the beginning, as those of "ls" in "list"; empty if there is none.
inline std::string command_short_for(const std::string& word,
                                     const std::vector<std::string>& commands) {
  for (const std::string& command : commands) {
    if (word.empty() || command.empty() || word[0] != command[0]) continue;
    std::size_t found = 0;
    for (const char letter : word) {
      if (found < command.size() && letter == command[found]) ++found;
    }
    if (found == command.size()) return command;
  }
  return "";
}

/// What is wrong with a command line that CLI11 refused, with what the user may have meant by a
/// word that is none of the program's: "... (--jsno: did you mean --json?)".
inline std::string parse_failure(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  bool names_command = app.get_subcommands().empty();  // of the first word
  for (std::string word : app.remaining(true)) {
    word = word.substr(0, word.find('='));
    const std::vector<std::string> known = known_words(app, word);
    std::string near = nearest_name(word, known);
    if (near.empty() && names_command && !word.starts_with('-')) {
      near = command_short_for(word, known);
    }
    names_command = false;
    if (!near.empty()) text += " (" + word + ": did you mean " + near + "?)";
  }
  return text;
}

/// The flag for ranks without a launcher.
inline CLI::Option* add_local_ranks(CLI::App& app, int& ranks) {
  return app
      .add_option("--local-ranks", ranks,
                  "ranks as threads of this one process, without a launcher")
      ->check(CLI::Range(1, 1024));
}

/// How a program ends, and what it says then.
struct ProgramEnd {
  int trouble = exit_status::kFault;  ///< the status of an error
  bool speaks = true;  ///< false: another rank of the job tells of errors and prints --help
};

/// Parses the command line and does `work`, which returns the status. Errors are told of on
/// standard error, under the program's name.
template <typename Work>
int run_program(CLI::App& app, int argc, char** argv, const ProgramEnd& end, const Work& work) {
  std::string problem;
  try {
    limit_cpu(process_environment());
    keep_streams_closed();
    report_large_files();
    const auto asked = parse_command_line(app, argc, argv);
    if (!asked) return work();
    if (end.speaks) print(*asked);
    return exit_status::kOk;
  } catch (const CLI::ParseError& error) {
    problem = parse_failure(app, error) + "; see " + app.get_name() + " --help";
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (end.speaks) print_error("{}: {}\n", app.get_name(), problem);
  return end.trouble;
}

/// The commands of a program, of which the parsed command line chooses one.
class Commands {
 public:
  /// `without`: done without a command; by default one is required.
  explicit Commands(CLI::App& app, std::function<int()> without = {})
      : app_(app), chosen_(std::move(without)) {
    app_.require_subcommand(chosen_ ? 0 : 1, 1);
  }
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// A command that does `act`, which returns the status. Its arguments are for the caller to add.
  CLI::App& add(const char* name, const char* help, std::function<int()> act) {
    CLI::App* const command = app_.add_subcommand(name, help);
    command->callback([this, act = std::move(act)] { chosen_ = act; });
    return *command;
  }
  int act() const { return chosen_(); }

 private:
  CLI::App& app_;
  std::function<int()> chosen_;
};

}  // namespace zero
