// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/training_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "files/file_system.h"
#include "launch/memory/memory_text.h"
#include "launch/plan/written_config.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

constexpr std::size_t kTooLarge = 3;

using Progress = std::function<void(const std::string&)>;

std::int64_t exact_bytes(const TrainingQuestion& question, const Candidate& candidate) {
  const TrainConfig config = config_of(question, candidate);
  return bounded_bytes_of(exact_plan(config, question.machine.backend()).memory);
}

PlannedRow planned_row(const TrainingQuestion& question, const Ranked& row, ClosedForms& forms) {
  PlannedRow planned{.row = row};
  const Candidate& c = row.candidate;
  planned.exact = exact_plan(config_of(question, c), question.machine.backend());
  planned.bytes = bounded_bytes_of(planned.exact.memory);
  planned.plain = bounded_bytes_of(forms.memory(plain_of(c)));
  if (c.optimizer == Tier::file) {
    planned.notes.push_back(fmt::format(
        "optimizer states are in a rank's file of {}, which each step reads and writes; no "
        "estimate of time counts that",
        size_text(sum_of(planned.exact.memory.file))));
  }
  if (const int sums = c.partial_sums(); sums > 0) {
    planned.notes.push_back(
        fmt::format("accumulation of {} keeps {} of each gradient, {} B a parameter "
                    "over a shard axis of {}",
                    c.accumulation, counted(sums, "partial sum"), 4 * sums, c.mesh.shard));
  }
  return planned;
}

/// Of the same candidate at a lower sharded stage, if that takes less: small models gather windows
/// of all of their parameters.
void note_lower_stage(const TrainingQuestion& question, PlannedRow& row) {
  for (int stage = row.row.candidate.stage - 1; stage >= 1; --stage) {
    Candidate lower = row.row.candidate;
    lower.stage = stage;
    const std::int64_t bytes = exact_bytes(question, lower);
    if (bytes > row.bytes) continue;
    row.notes.push_back(
        fmt::format("stage {} takes {}, no more than stage {} with {}: the lower stage sends less",
                    stage, size_text(bytes), row.row.candidate.stage, size_text(row.bytes)));
    return;
  }
}

/// Of the rows that cost the same as `row`, the one that takes least.
void note_least(const Ranking& ranking, PlannedRow& row) {
  const Ranked* least = &row.row;
  for (const Ranked& each : ranking.fitting) {
    if (each.cost == row.row.cost && each.bytes < least->bytes) least = &each;
  }
  if (least == &row.row) return;
  const Candidate& c = least->candidate;
  row.notes.push_back(fmt::format(
      "at the same cost stage {} with {} moments and micro-batches of {} takes {}; --write writes "
      "this row: for that one give --stage {} --moments {} --micro {} --shard {} --tensor {}",
      c.stage, name_of(c.moments), c.micro, size_text(least->bytes), c.stage, name_of(c.moments),
      c.micro, c.mesh.shard, c.mesh.tensor));
}

/// One row of each cost. One that fits by its closed form alone is passed over, and the next one is
/// planned.
void plan_best(const Ranking& ranking, ClosedForms& forms, std::size_t top, TrainingAnswer& answer,
               const Progress& say) {
  for (const Ranked& each : ranking.fitting) {
    if (answer.rows.size() == top) return;
    if (!answer.rows.empty() && answer.rows.back().row.cost == each.cost) continue;
    say(fmt::format("planning row {} of {}", answer.rows.size() + 1, top));
    PlannedRow row = planned_row(answer.question, each, forms);
    if (row.bytes > answer.question.machine.budget()) continue;
    note_lower_stage(answer.question, row);
    note_least(ranking, row);
    answer.rows.push_back(std::move(row));
  }
}

void plan_too_large(const Ranking& ranking, ClosedForms& forms, TrainingAnswer& answer,
                    const Progress& say) {
  for (const Ranked& each : ranking.missing) {
    if (answer.too_large.size() == kTooLarge) return;
    if (!answer.rows.empty() && !(each.cost < answer.rows.front().row.cost)) continue;
    say(fmt::format("planning {} that do not fit", kTooLarge));
    answer.too_large.push_back(planned_row(answer.question, each, forms));
  }
}

std::string numbered_path(const std::string& path, std::size_t number) {
  if (number == 0) return path;
  const std::filesystem::path whole(path);
  const std::string name =
      fmt::format("{}-{}{}", whole.stem().string(), number + 1, whole.extension().string());
  return (whole.parent_path() / name).string();
}

}  // namespace

double PlannedRow::closed_error() const {
  return static_cast<double>(row.bytes - bytes) / static_cast<double>(bytes);
}

MemoryClass PlannedRow::largest_class() const {
  const BytesByClass& ledger = exact.memory.ledger;
  return static_cast<MemoryClass>(std::ranges::max_element(ledger) - ledger.begin());
}

TrainingAnswer answer_training(const TrainingQuestion& question, int top,
                               const Progress& progress) {
  const Progress say = progress ? progress : [](const std::string& /*step*/) {};
  check(question.machine);
  TrainingAnswer answer{.question = question};
  ClosedForms forms(config_of(question, candidates(question).front()), question.machine);
  say("ranking candidates by closed forms");
  const Ranking ranking = rank_candidates(question, forms);
  answer.candidates = static_cast<std::int64_t>(ranking.count());
  answer.fitting = std::ssize(ranking.fitting);
  plan_best(ranking, forms, static_cast<std::size_t>(top), answer, say);
  plan_too_large(ranking, forms, answer, say);
  if (answer.rows.empty()) {
    say("looking for what would help");
    answer.shortfall = shortfall_lines(question, answer.too_large.front());
  }
  return answer;
}

void check_written(const std::string& path, std::size_t count) {
  ZERO_CHECK(std::filesystem::path(path).has_filename(),
             "--write: found \"{}\", expected the name of a file, such as run.json", path);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = numbered_path(path, i);
    std::error_code error;
    // Links whose target is missing are there too.
    ZERO_CHECK(!std::filesystem::exists(std::filesystem::symlink_status(name, error)),
               "--write: {} exists; give another name, or remove that file", name);
    try {
      files::check_target(files::disk(), name);
    } catch (const Error& why) {
      fail("--write: {} cannot be written: {}", name, why.what());
    }
  }
}

void write_rows(TrainingAnswer& answer, const std::string& path) {
  if (answer.rows.empty()) answer.shortfall.emplace_back("nothing written: no row fits");
  check_written(path, answer.rows.size());
  for (std::size_t i = 0; i < answer.rows.size(); ++i) {
    PlannedRow& row = answer.rows[i];
    row.written = numbered_path(path, i);
    errno = 0;
    std::ofstream file(row.written, std::ios::binary);
    file << written_configuration(answer.question, row.row.candidate).dump(2) << "\n";
    file.close();
    if (file) continue;
    const std::string why = std::strerror(errno);
    std::error_code ignored;
    for (std::size_t made = 0; made <= i; ++made) {
      std::filesystem::remove(answer.rows[made].written, ignored);
    }
    fail("--write: {} cannot be written: {}", row.written, why);
  }
}

}  // namespace zero
