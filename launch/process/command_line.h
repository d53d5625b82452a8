// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Included by programs alone, which link CLI11.
#include <CLI/CLI.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "launch/config/similar_names.h"

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

}  // namespace zero
