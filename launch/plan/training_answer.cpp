// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/training_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/message_text.h"
#include "launch/plan/written_config.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

constexpr std::size_t kTooLarge = 3;

using Progress = std::function<void(const std::string&)>;

/// "optimizer states and parameters": what a row has in a tier; empty: nothing.
std::string what_is_in(Tier tier, const Candidate& candidate) {
  std::vector<std::string> what;
  if (candidate.offload.optimizer == tier) what.emplace_back("optimizer states");
  if (candidate.offload.parameters == tier) what.emplace_back("parameters");
  if (tier == Tier::host && candidate.kept_inputs == KeptInputPlace::host) {
    what.emplace_back("kept inputs of blocks");
  }
  if (what.size() < 2) return what.empty() ? "" : what.front();
  const std::string last = std::exchange(what.back(), "");
  what.pop_back();
  return fmt::format("{} and {}", fmt::join(what, ", "), last);
}

/// What of a row is below the memory of its device, and how much of it a step moves.
void note_tiers(const Machine& machine, PlannedRow& row) {
  const Candidate& c = row.ranked.candidate;
  const MemoryUse& memory = row.exact.memory;
  const auto bytes = [](double figure) { return size_text(std::llround(figure)); };
  const std::string filed = what_is_in(Tier::file, c);
  if (!filed.empty()) {
    row.notes.push_back(
        fmt::format("{} are in a rank's file of {}; a step reads and writes {}; no estimate of "
                    "time counts that",
                    filed, size_text(sum_of(memory.file)), bytes(row.ranked.work.filed)));
  }
  if (machine.kind == DeviceKind::cpu) return;
  const std::string hosted = what_is_in(Tier::host, c);
  if (filed.empty() && hosted.empty()) return;
  row.notes.push_back(
      fmt::format("{} in pinned host memory: {} of a rank, {} of all ranks of a host{}; a step "
                  "copies {} between a GPU and its host; no estimate of time counts that",
                  hosted.empty() ? "windows of files are" : hosted + " are",
                  size_text(memory.on_host()), size_text(host_bytes(memory, machine)),
                  machine.host_memory == 0 ? ", which limits no row without --host-memory"
                                           : " that has " + size_text(machine.host_memory),
                  bytes(row.ranked.work.copied)));
}

PlannedRow planned_row(const TrainingQuestion& question, const Ranked& row, ClosedForms& forms) {
  PlannedRow planned{.ranked = row};
  const Candidate& c = row.candidate;
  planned.exact = exact_plan(config_of(question, c), question.machine.backend());
  planned.bytes = planned.exact.memory.bounded();
  planned.shortage = Shortage::of(planned.exact.memory, question.machine);
  planned.plain = forms.memory(plain_of(c)).bounded();
  note_tiers(question.machine, planned);
  if (const int sums = c.partial_sums(); sums > 0) {
    planned.notes.push_back(fmt::format(
        "accumulation of {} keeps {} of each gradient, {} B a parameter over a shard axis of {}",
        c.accumulation, counted(sums, "partial sum"), 4 * sums, c.mesh.shard));
  }
  return planned;
}

/// Of the same candidate at a lower sharded stage, if that takes less: small models gather windows
/// of all of their parameters. One rank of the shard axis sends nothing at any stage.
void note_lower_stage(const TrainingQuestion& question, PlannedRow& row) {
  if (row.ranked.candidate.mesh.shard == 1) return;
  for (int stage = row.ranked.candidate.stage - 1; stage >= 1; --stage) {
    Candidate lower = row.ranked.candidate;
    lower.stage = stage;
    lower.offload.parameters = Tier::device;
    const std::int64_t bytes =
        exact_plan(config_of(question, lower), question.machine.backend()).memory.bounded();
    if (bytes > row.bytes) continue;
    row.notes.push_back(
        fmt::format("stage {} takes {}, no more than stage {} with {}: the lower stage sends less",
                    stage, size_text(bytes), row.ranked.candidate.stage, size_text(row.bytes)));
    return;
  }
}

/// Of the rows that cost the same as `row`, the one that takes least.
void note_least(const Ranking& ranking, PlannedRow& row) {
  const Ranked* least = &row.ranked;
  for (const Ranked& each : ranking.fitting) {
    if (each.cost == row.ranked.cost && each.bytes < least->bytes) least = &each;
  }
  if (least == &row.ranked) return;
  const Candidate& c = least->candidate;
  row.notes.push_back(fmt::format(
      "at the same cost stage {} with {} moments and micro-batches of {} takes {}; --write writes "
      "this row: for that one give --stage {} --moments {} --micro {} --shard {} --tensor {}",
      c.stage, name_of(c.moments), c.micro, size_text(least->bytes), c.stage, name_of(c.moments),
      c.micro, c.mesh.shard, c.mesh.tensor));
}

/// One row of each cost. One that fits by its closed form alone is too large, and the next one is
/// planned.
void plan_best(const Ranking& ranking, ClosedForms& forms, std::size_t top, TrainingAnswer& answer,
               const Progress& say) {
  for (const Ranked& each : ranking.fitting) {
    if (answer.rows.size() == top) return;
    if (!answer.rows.empty() && answer.rows.back().ranked.cost == each.cost) continue;
    say(fmt::format("planning row {} of {}", answer.rows.size() + 1, top));
    PlannedRow row = planned_row(answer.question, each, forms);
    if (!row.shortage.none()) {
      answer.too_large.push_back(std::move(row));
      continue;
    }
    note_lower_stage(answer.question, row);
    note_least(ranking, row);
    answer.rows.push_back(std::move(row));
  }
}

void plan_too_large(const Ranking& ranking, ClosedForms& forms, TrainingAnswer& answer,
                    const Progress& say) {
  const auto dear = [&](const Ranked& each) {
    return !answer.rows.empty() && !(each.cost < answer.rows.front().ranked.cost);
  };
  std::erase_if(answer.too_large, [&](const PlannedRow& row) { return dear(row.ranked); });
  for (const Ranked& each : ranking.missing) {
    if (answer.too_large.size() >= kTooLarge) break;
    if (dear(each)) continue;
    say(fmt::format("planning {} that do not fit", kTooLarge));
    answer.too_large.push_back(planned_row(answer.question, each, forms));
  }
  std::ranges::stable_sort(answer.too_large, {},
                           [](const PlannedRow& row) { return row.shortage.sum(); });
  answer.too_large.resize(std::min(answer.too_large.size(), kTooLarge));
}

}  // namespace

double PlannedRow::closed_error() const {
  return static_cast<double>(ranked.bytes - bytes) / static_cast<double>(bytes);
}

MemoryClass PlannedRow::largest_class() const {
  const BytesByClass& ledger = exact.memory.ledger;
  return static_cast<MemoryClass>(std::ranges::max_element(ledger) - ledger.begin());
}

TrainingAnswer answer_training(const TrainingQuestion& question, int top,
                               const Progress& progress) {
  check(question.machine);
  ClosedForms forms(config_of(question, candidates(question).front()), question.machine);
  if (progress) progress("ranking candidates by closed forms");
  return answer_ranked(question, rank_candidates(question, forms), forms, top, progress);
}

TrainingAnswer answer_ranked(const TrainingQuestion& question, const Ranking& ranking,
                             ClosedForms& forms, int top, const Progress& progress) {
  const Progress say = progress ? progress : [](const std::string& /*step*/) {};
  TrainingAnswer answer{.question = question,
                        .candidates = static_cast<std::int64_t>(ranking.count()),
                        .fitting = std::ssize(ranking.fitting)};
  plan_best(ranking, forms, static_cast<std::size_t>(top), answer, say);
  plan_too_large(ranking, forms, answer, say);
  if (answer.rows.empty()) {
    say("looking for what would help");
    answer.shortfall = shortfall_lines(question, answer.too_large.front());
  }
  return answer;
}

void write_rows(TrainingAnswer& answer, const std::string& path) {
  if (answer.rows.empty()) answer.shortfall.emplace_back("nothing written: no row fits");
  std::vector<Candidate> candidates;
  for (const PlannedRow& row : answer.rows) candidates.push_back(row.ranked.candidate);
  const auto names = write_configurations(answer.question, candidates, path);
  for (std::size_t i = 0; i < names.size(); ++i) answer.rows[i].written = names[i];
}

}  // namespace zero
