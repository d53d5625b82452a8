// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/training_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "engine/sharding.h"
#include "files/file_system.h"
#include "launch/plan/written_config.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

constexpr std::size_t kTooLarge = 3;

using Progress = std::function<void(const std::string&)>;

/// Of what accumulation costs: a finished gradient in fp32 is itself the last sum.
void note_partial_sums(PlannedRow& row) {
  const Candidate& c = row.row.candidate;
  const int sums = held_partials(static_cast<int>(c.accumulation)) -
                   (c.compute == DType::fp32 && c.accumulation > 1 ? 1 : 0);
  if (sums <= 0) return;
  row.notes.push_back(
      fmt::format("accumulation of {} keeps {} partial sum{} of each gradient, {} B a parameter "
                  "over {} shard rank{}",
                  c.accumulation, sums, sums == 1 ? "" : "s", 4 * sums, c.mesh.shard,
                  c.mesh.shard == 1 ? "" : "s"));
}

PlannedRow planned_row(const TrainingQuestion& question, const Ranked& row) {
  PlannedRow planned{.row = row};
  planned.exact = exact_plan(config_of(question, row.candidate), question.machine.backend());
  planned.bytes = bounded_bytes_of(planned.exact.memory);
  note_partial_sums(planned);
  return planned;
}

/// Of the same candidate at a lower sharded stage, if that takes less: small models gather windows
/// of all of their parameters.
void note_lower_stage(const TrainingQuestion& question, PlannedRow& row) {
  for (int stage = row.row.candidate.stage - 1; stage >= 1; --stage) {
    Candidate lower = row.row.candidate;
    lower.stage = stage;
    const std::int64_t bytes =
        bounded_bytes_of(exact_plan(config_of(question, lower), question.machine.backend()).memory);
    if (bytes > row.bytes) continue;
    row.notes.push_back(
        fmt::format("stage {} takes {}, no more than stage {} with {}: the lower stage sends less",
                    stage, bytes_text(static_cast<double>(bytes)), row.row.candidate.stage,
                    bytes_text(static_cast<double>(row.bytes))));
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
      c.stage, name_of(c.moments), c.micro, bytes_text(static_cast<double>(least->bytes)), c.stage,
      name_of(c.moments), c.micro, c.mesh.shard, c.mesh.tensor));
}

/// One row of each cost. One that fits by its closed form alone is passed over, and the next one is
/// planned.
void plan_best(const Ranking& ranking, ClosedForms& forms, std::size_t top, TrainingAnswer& answer,
               const Progress& progress) {
  const TrainingQuestion& question = answer.question;
  for (const Ranked& each : ranking.fitting) {
    if (answer.rows.size() == top) return;
    if (!answer.rows.empty() && answer.rows.back().row.cost == each.cost) continue;
    progress(fmt::format("planning row {} of {}", answer.rows.size() + 1, top));
    PlannedRow row = planned_row(question, each);
    if (row.bytes > question.machine.budget()) continue;
    row.plain = bounded_bytes_of(forms.memory(plain_of(each.candidate)));
    note_lower_stage(question, row);
    note_least(ranking, row);
    answer.rows.push_back(std::move(row));
  }
}

void plan_too_large(const Ranking& ranking, ClosedForms& forms, TrainingAnswer& answer,
                    const Progress& progress) {
  for (const Ranked& each : ranking.missing) {
    if (answer.too_large.size() == kTooLarge) return;
    const bool cheaper = answer.rows.empty() || each.cost < answer.rows.front().row.cost;
    if (!cheaper) continue;
    progress(fmt::format("planning {} that do not fit", kTooLarge));
    PlannedRow row = planned_row(answer.question, each);
    row.plain = bounded_bytes_of(forms.memory(plain_of(each.candidate)));
    answer.too_large.push_back(std::move(row));
  }
}

/// Links whose target is missing are there too.
void check_absent(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  ZERO_CHECK(!std::filesystem::exists(status),
             "--write: {} exists; give another name, or remove that file", path);
}

void write_row(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  ZERO_CHECK(file, "--write: {} cannot be written: {}", path, std::strerror(errno));
}

/// Removes what was written unless all was.
class WrittenFiles {
 public:
  WrittenFiles() = default;
  WrittenFiles(const WrittenFiles&) = delete;
  WrittenFiles& operator=(const WrittenFiles&) = delete;
  ~WrittenFiles() {
    std::error_code ignored;
    for (const std::string& path : paths_) std::filesystem::remove(path, ignored);
  }
  void write(const std::string& path, const std::string& text) {
    check_absent(path);
    paths_.push_back(path);
    write_row(path, text);
  }
  void keep() { paths_.clear(); }

 private:
  std::vector<std::string> paths_{};
};

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
  const TrainConfig base = config_of(question, candidates(question).front());
  ClosedForms forms(base, question.machine);
  say("ranking candidates by closed forms");
  const Ranking ranking = rank_candidates(question, forms);
  answer.candidates = static_cast<std::int64_t>(ranking.count());
  answer.fitting = std::ssize(ranking.fitting);
  answer.model_flop = question.model.flop_per_token(question.sequence);
  plan_best(ranking, forms, static_cast<std::size_t>(top), answer, say);
  plan_too_large(ranking, forms, answer, say);
  if (answer.rows.empty()) {
    say("looking for what would help");
    answer.shortfall = shortfall_lines(question, answer.too_large.front());
  }
  return answer;
}

void check_written(const std::string& path, int top) {
  ZERO_CHECK(std::filesystem::path(path).has_filename(),
             "--write: found \"{}\", expected the name of a file, such as run.json", path);
  for (std::size_t i = 0; i < static_cast<std::size_t>(top); ++i) {
    const std::string name = numbered_path(path, i);
    check_absent(name);
    try {
      files::check_target(files::disk(), name);
    } catch (const Error& error) {
      fail("--write: {} cannot be written: {}", name, error.what());
    }
  }
}

void write_rows(TrainingAnswer& answer, const std::string& path) {
  if (answer.rows.empty()) answer.shortfall.emplace_back("nothing written: no row fits");
  WrittenFiles files;
  for (std::size_t i = 0; i < answer.rows.size(); ++i) {
    PlannedRow& row = answer.rows[i];
    row.written = numbered_path(path, i);
    files.write(row.written,
                written_configuration(answer.question, row.row.candidate).dump(2) + "\n");
  }
  files.keep();
}

}  // namespace zero
