// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/plan/exact_plan.h"
#include "launch/plan/ranking.h"

namespace zero {

/// A candidate that the engine itself has planned.
struct PlannedRow {
  Ranked ranked{};
  ExactPlan exact{};
  std::int64_t bytes = 0;  ///< that the machine's memory bounds, of the fullest rank
  Shortage shortage{};
  std::int64_t plain = 0;            ///< the same of plain_of(), by closed forms
  std::vector<std::string> notes{};  ///< sentences: what is below the device's memory, ...
  std::string written{};             ///< the file of its configuration; empty: none

  /// By how much the closed form misses the plan, as a part of it.
  double closed_error() const;
  /// The class with most bytes.
  MemoryClass largest_class() const;
};

/// What zero_plan says about training.
struct TrainingAnswer {
  TrainingQuestion question{};
  std::int64_t candidates = 0;
  std::int64_t fitting = 0;        ///< by closed forms
  std::vector<PlannedRow> rows{};  ///< the best that fit, best first
  /// That would cost less than the first of `rows`, and miss least, least first; if nothing fits,
  /// those that miss least.
  std::vector<PlannedRow> too_large{};
  std::vector<std::string> shortfall{};  ///< if nothing fits: what would help
};

/// Ranks all candidates and has the engine plan the `top` best of those that fit, and up to three
/// that miss. Throws zero::Error as candidates() and config_of() do. `progress`, if any, is told
/// what is about to be done, before each step that may take long.
TrainingAnswer answer_training(const TrainingQuestion& question, int top,
                               const std::function<void(const std::string&)>& progress = {});
/// The same of candidates that are ranked already; at least one of them.
TrainingAnswer answer_ranked(const TrainingQuestion& question, const Ranking& ranking,
                             ClosedForms& forms, int top,
                             const std::function<void(const std::string&)>& progress = {});

/// Writes the configuration of each row, as write_configurations() does; without rows the shortfall
/// says so.
void write_rows(TrainingAnswer& answer, const std::string& path);

/// The table for people.
std::string text_of(const TrainingAnswer& answer);
nlohmann::ordered_json json_of(const TrainingAnswer& answer);

/// Sentences on a question of which no candidate fits: the bytes short, and what would help.
/// `least`: the candidate that misses least.
std::vector<std::string> shortfall_lines(const TrainingQuestion& question, const PlannedRow& least);

}  // namespace zero
