// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/training_answer.h"
#include "launch/plan/written_config.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

constexpr int kMostHostsTried = 4096;
constexpr int kMostInMesh = 1'000'000;  // of mesh.shard in a configuration

/// The same question with more hosts; tensor degrees stay within a host, so every candidate stays.
TrainingQuestion with_hosts(const TrainingQuestion& question, int hosts) {
  TrainingQuestion larger = question;
  larger.machine.hosts = hosts;
  return larger;
}

/// Fewer candidates, each of the question itself: whole shards, and the smallest micro-batch,
/// moments and accumulation. A batch keeps all micro-batches: small ones take more partial sums.
TrainingQuestion frugal(TrainingQuestion question) {
  CandidateAxes& axes = question.axes;
  if (!axes.batch) axes.micros = {std::ranges::min(axes.micros)};
  axes.accumulations = {std::ranges::min(axes.accumulations)};
  axes.moments = {std::ranges::min(
      axes.moments, {}, [](MomentFormat format) { return size_of(moment_dtype(format)); })};
  if (!axes.shards.empty()) return question;
  for (int tensor = 1; tensor <= question.machine.devices; ++tensor) {
    axes.shards.push_back(question.machine.world() / tensor);
  }
  return question;
}

bool fits(const TrainingQuestion& whole) {
  const std::vector<Candidate> all = possible_candidates(frugal(whole));
  if (all.empty()) return false;
  const TrainConfig base = config_of(whole, all.front());
  ClosedForms forms(base, whole.machine);
  return std::ranges::any_of(all, [&](const Candidate& each) {
    return bounded_bytes_of(forms.memory(each)) <= whole.machine.budget();
  });
}

int most_hosts(const Machine& machine) {
  return std::min(kMostHostsTried, kMostInMesh / machine.devices);
}

/// The least hosts that fit, doubled from those there are; nothing up to most_hosts().
std::optional<int> enough_hosts(const TrainingQuestion& question) {
  for (int hosts = 2 * question.machine.hosts; hosts <= most_hosts(question.machine); hosts *= 2) {
    if (fits(with_hosts(question, hosts))) return hosts;
  }
  return std::nullopt;
}

/// The longest of halved sequences that fits; nothing if none of 128 tokens or more does.
std::optional<std::int64_t> short_sequence(const TrainingQuestion& question) {
  TrainingQuestion shorter = question;
  for (shorter.sequence /= 2; shorter.sequence >= 128; shorter.sequence /= 2) {
    if (fits(shorter)) return shorter.sequence;
  }
  return std::nullopt;
}

/// The largest of halved batches or accumulations that fits, as a flag; nothing if none does.
std::optional<std::string> fewer_micro_batches(const TrainingQuestion& question) {
  TrainingQuestion fewer = question;
  std::int64_t accumulation = std::ranges::min(question.axes.accumulations);
  std::int64_t& count = question.axes.batch ? *fewer.axes.batch : accumulation;
  for (count /= 2; count >= 1; count /= 2) {
    fewer.axes.accumulations = {accumulation};
    if (!fits(fewer)) continue;
    return fmt::format("--{} {}", question.axes.batch ? "batch" : "accumulation", count);
  }
  return std::nullopt;
}

std::int64_t class_of(const PlannedRow& row, MemoryClass c) {
  return row.exact.memory.ledger[static_cast<std::size_t>(c)];
}

std::string bytes_in_text(std::int64_t value) { return bytes_text(static_cast<double>(value)); }

/// What the roadmap has for the classes that are in the way.
void add_roadmap(const PlannedRow& least, std::int64_t budget, std::vector<std::string>& lines) {
  const std::int64_t optimizer = class_of(least, MemoryClass::optimizer);
  const std::int64_t states = class_of(least, MemoryClass::parameters) +
                              class_of(least, MemoryClass::gradients) + optimizer;
  const std::int64_t activations = class_of(least, MemoryClass::activations);
  const auto outcome = [&](std::int64_t left) {
    return left <= budget ? "which would fit" : "which would not be enough alone";
  };
  lines.push_back(fmt::format(
      "not there yet, on the roadmap: tiers below device memory (optimizer states in host memory "
      "would leave {} here, {}; all model states, {}, {})",
      bytes_in_text(least.bytes - optimizer), outcome(least.bytes - optimizer),
      bytes_in_text(least.bytes - states), outcome(least.bytes - states)));
  lines.push_back(fmt::format(
      "not there yet, on the roadmap: LoRA (frozen parameters have neither gradients nor optimizer "
      "states; without these: {}, {}) and pipeline stages (a part of the blocks on each rank)",
      bytes_in_text(least.bytes - optimizer - class_of(least, MemoryClass::gradients)),
      outcome(least.bytes - optimizer - class_of(least, MemoryClass::gradients))));
  if (activations < states) return;
  lines.push_back(fmt::format(
      "not there yet, on the roadmap: long context (ring attention cuts a sequence over ranks; "
      "activations are {} of {})",
      bytes_in_text(activations), bytes_in_text(least.bytes)));
}

}  // namespace

std::vector<std::string> shortfall_lines(const TrainingQuestion& question,
                                         const PlannedRow& least) {
  const std::int64_t budget = question.machine.budget();
  std::vector<std::string> lines{fmt::format(
      "no candidate fits: the least takes {} of {}, short by {}; most of it is {} ({})",
      bytes_in_text(least.bytes), bytes_in_text(budget), bytes_in_text(least.bytes - budget),
      name_of(least.largest_class()), bytes_in_text(class_of(least, least.largest_class())))};
  if (const auto hosts = enough_hosts(question)) {
    lines.push_back(
        fmt::format("more devices help: {} x {} (hosts x devices) fit by the closed forms", *hosts,
                    question.machine.devices));
  } else if (2 * question.machine.hosts <= most_hosts(question.machine)) {
    lines.push_back(fmt::format(
        "more devices do not help: {} x {} (hosts x devices) do not fit either",
        std::bit_floor(
            static_cast<unsigned>(most_hosts(question.machine) / question.machine.hosts)) *
            static_cast<unsigned>(question.machine.hosts),
        question.machine.devices));
  }
  if (const auto sequence = short_sequence(question)) {
    lines.push_back(
        fmt::format("shorter sequences help: --sequence {} fits by the closed forms", *sequence));
  } else {
    lines.emplace_back("shorter sequences do not help: those of 128 tokens do not fit either");
  }
  if (const auto flag = fewer_micro_batches(question)) {
    lines.push_back(fmt::format("fewer micro-batches help: {} fits by the closed forms", *flag));
  }
  add_roadmap(least, budget, lines);
  return lines;
}

}  // namespace zero
