// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/message_text.h"
#include "launch/config/train_config.h"
#include "launch/plan/training_answer.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kRowFormat =
    "{:>3} {:>5} {:>5} x {:<5} {:<11} {:<13} {:<7} {:<5} {:>10}  {:<32} {:>17}  {:<34} {:>9} "
    "{:>8}\n";

constexpr const char* kStagingNotCounted = "the staging of checkpoints (run.checkpoint)";

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

/// "6.0 KiB / 1.2 GiB / -": along replicate, shard and tensor.
std::string sent_text(const PlannedRow& row) {
  std::vector<std::string> texts;
  for (const Axis axis : {Axis::replicate, Axis::shard, Axis::tensor}) {
    const bool alone = row.ranked.candidate.mesh.size(axis) == 1;
    texts.push_back(alone ? "-" : size_text(row.exact.traffic.of(axis).total()));
  }
  return fmt::format("{}", fmt::join(texts, " / "));
}

std::string row_line(const PlannedRow& row, std::size_t number, std::int64_t budget) {
  const Candidate& c = row.ranked.candidate;
  const double saved = 1 - static_cast<double>(row.bytes) / static_cast<double>(row.plain);
  const std::int64_t of_largest = at(row.exact.memory.ledger, row.largest_class());
  return fmt::format(kRowFormat, number, c.stage, c.micro, c.accumulation, c.recompute.text(),
                     c.mesh.text(), name_of(c.moments), name_of(c.compute), size_text(row.bytes),
                     row.bytes <= budget
                         ? fmt::format("fits, {} free", size_text(budget - row.bytes))
                         : fmt::format("short {}; {} {}", size_text(row.bytes - budget),
                                       name_of(row.largest_class()), size_text(of_largest)),
                     fmt::format("{} {}", size_text(row.plain - row.bytes), percent_text(saved)),
                     sent_text(row), count_text(row.ranked.work.flop),
                     percent_text(row.ranked.work.repeated / row.ranked.work.flop));
}

std::string rows_text(const std::vector<PlannedRow>& rows, std::int64_t budget) {
  std::string text = fmt::format(kRowFormat, "", "stage", "micro", "accum", "recompute",
                                 "mesh r x s x t", "moments", "dtype", "memory", "", "saved",
                                 "sent a step, r / s / t", "FLOP", "repeated");
  std::string below;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PlannedRow& row = rows[i];
    text += row_line(row, i + 1, budget);
    const auto add = [&](const std::string& line) {
      below += fmt::format("row {}: {}\n", i + 1, line);
    };
    if (row.ranked.step_seconds > 0) {
      add(fmt::format("about {:.3g} s a step, {:.0f} tokens/s in all", row.ranked.step_seconds,
                      row.ranked.tokens / row.ranked.step_seconds));
    }
    for (const std::string& note : row.notes) add(note);
    if (row.written.empty()) continue;
    add(fmt::format("written to {}; next: zero_train --plan --world {} --config {}", row.written,
                    row.ranked.candidate.mesh.ranks(), row.written));
  }
  return text + below + "\n";
}

/// What the figures are and are not.
std::string legend(const Machine& machine) {
  return "memory: of the fullest rank, planned by the engine itself" + left_out_text(machine) +
         ".\nsaved: beside stage 0 without recompute and with fp32 moments, by closed forms. sent: "
         "by the first rank, along the axes replicate, shard and tensor. FLOP: of a rank and step "
         "(P: 10^15, T: 10^12, G: 10^9, M: 10^6), with the share that recompute repeats. Several "
         "tensor ranks also cut the residual stream (mesh.sequence_parallel). Not counted: " +
         kStagingNotCounted + ".\n";
}

std::string closed_text(const std::vector<PlannedRow>& rows) {
  double worst = 0;
  for (const PlannedRow& row : rows) worst = std::max(worst, std::abs(row.closed_error()));
  return fmt::format("closed forms are within {:.2f} % of these plans\n", 100 * worst);
}

std::string tier_name(Tier tier) {
  if (tier == Tier::host) return "cpu";
  return tier == Tier::file ? "nvme" : "none";
}

OrderedJson row_json(const PlannedRow& row, std::int64_t budget) {
  const Candidate& c = row.ranked.candidate;
  OrderedJson classes = OrderedJson::object();
  for (const MemoryClass each : all_memory_classes()) {
    classes[std::string(name_of(each))] = at(row.exact.memory.ledger, each);
  }
  OrderedJson all{{"stage", c.stage},
                  {"micro_batch", c.micro},
                  {"accumulation", c.accumulation},
                  {"sequences_a_step", c.sequences()},
                  {"recompute", c.recompute.text()},
                  {"mesh", mesh_json(c.mesh)},
                  {"moments", name_of(c.moments)},
                  {"dtype", name_of(c.compute)},
                  {"offload_optimizer", tier_name(c.offload.optimizer)},
                  {"offload_param", tier_name(c.offload.parameters)},
                  {"bytes", row.bytes},
                  {"closed_form_bytes", row.ranked.bytes},
                  {"fits", row.bytes <= budget},
                  {"short_bytes", std::max<std::int64_t>(0, row.bytes - budget)},
                  {"largest_class", name_of(row.largest_class())},
                  {"memory", classes},
                  {"file", listed_json(row.exact.memory.file)},
                  {"plain_bytes", row.plain},
                  {"communication", axes_json(row.exact.traffic, c.mesh)},
                  {"flop", row.ranked.work.flop},
                  {"flop_repeated", row.ranked.work.repeated},
                  {"seconds", row.ranked.step_seconds > 0 ? OrderedJson(row.ranked.step_seconds)
                                                          : OrderedJson()},
                  {"notes", row.notes}};
  if (!row.written.empty()) all["written"] = row.written;
  return all;
}

OrderedJson rows_json(const std::vector<PlannedRow>& rows, std::int64_t budget) {
  OrderedJson all = OrderedJson::array();
  for (const PlannedRow& row : rows) all.push_back(row_json(row, budget));
  return all;
}

}  // namespace

std::string text_of(const TrainingAnswer& answer) {
  const TrainingQuestion& question = answer.question;
  const Machine& machine = question.machine;
  std::string text = fmt::format(
      "{}: {} parameters; sequences of {}; {}\n{}, {} of them fit by closed "
      "forms\n{}\n\n",
      question.model_text, question.model.parameter_count(), counted(question.sequence, "token"),
      machine.text(), counted(answer.candidates, "candidate"), answer.fitting, order_text(machine));
  if (!answer.rows.empty()) text += rows_text(answer.rows, machine.budget());
  if (!answer.too_large.empty()) {
    text +=
        answer.rows.empty() ? "those that miss least\n" : "these would cost less, and miss least\n";
    text += rows_text(answer.too_large, machine.budget());
  }
  for (const std::string& line : answer.shortfall) text += line + "\n";
  if (!answer.shortfall.empty()) text += "\n";
  return text + legend(machine) + closed_text(answer.rows.empty() ? answer.too_large : answer.rows);
}

OrderedJson json_of(const TrainingAnswer& answer) {
  const TrainingQuestion& question = answer.question;
  const Machine& machine = question.machine;
  return {{"model", question.model_text},
          {"parameters", question.model.parameter_count()},
          {"sequence_length", question.sequence},
          {"machine", json_of(machine)},
          {"candidates", answer.candidates},
          {"fitting", answer.fitting},
          {"order", order_text(machine)},
          {"planned_with", planned_with_text(machine)},
          {"not_counted", OrderedJson::array({not_counted_text(machine), kStagingNotCounted})},
          {"rows", rows_json(answer.rows, machine.budget())},
          {"too_large", rows_json(answer.too_large, machine.budget())},
          {"shortfall", answer.shortfall}};
}

}  // namespace zero
