// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "launch/config/train_config.h"
#include "launch/plan/training_answer.h"
#include "launch/plan/written_config.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string grouped_digits(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string size_shown(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string mesh_text(const MeshShape& mesh) {
  return fmt::format("{} x {} x {}", mesh.replicate, mesh.shard, mesh.tensor);
}

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

/// "6.8 P", "198 M": three digits and the prefix.
std::string flop_text(double flop) {
  constexpr std::string_view kPrefixes = " kMGTPE";
  std::size_t at = 0;
  for (; flop >= 999.5 && at + 1 < kPrefixes.size(); ++at) flop /= 1000;
  return fmt::format("{:.3g} {}", flop, kPrefixes[at]);
}

double repeated_share(const StepWork& work) { return work.repeated / work.flop; }

/// "6.0k / 1.2 GiB / -": along replicate, shard and tensor.
std::string sent_text(const PlannedRow& row) {
  std::string text;
  for (const Axis axis : {Axis::replicate, Axis::shard, Axis::tensor}) {
    const std::int64_t bytes = row.exact.traffic.of(axis).total();
    text += text.empty() ? "" : " / ";
    text += row.row.candidate.mesh.size(axis) == 1 ? "-" : size_shown(bytes);
  }
  return text;
}

/// How the row's bytes stand to what the machine has.
std::string fit_text(const PlannedRow& row, std::int64_t budget) {
  const std::int64_t over = row.bytes - budget;
  if (over <= 0) return fmt::format("fits, {} free", size_shown(-over));
  const auto of = static_cast<std::size_t>(row.largest_class());
  return fmt::format("short {}; {} {}", size_shown(over), name_of(row.largest_class()),
                     size_shown(row.exact.memory.ledger[of]));
}

constexpr const char* kRowFormat =
    "{:>3} {:>5} {:>5} x {:<5} {:<11} {:<13} {:<7} {:<5} {:>10}  {:<32} {:>17}  {:<34} {:>9} "
    "{:>8}\n";

std::string header_line() {
  return fmt::format(kRowFormat, "", "stage", "micro", "accum", "recompute", "mesh r x s x t",
                     "moments", "dtype", "memory", "", "saved", "sent a step, r / s / t", "FLOP",
                     "repeated");
}

std::string row_line(const PlannedRow& row, std::size_t number, std::int64_t budget) {
  const Candidate& c = row.row.candidate;
  const double saved = 1 - static_cast<double>(row.bytes) / static_cast<double>(row.plain);
  return fmt::format(
      kRowFormat, number, c.stage, c.micro, c.accumulation, c.recompute.text(), mesh_text(c.mesh),
      name_of(c.moments), name_of(c.compute), size_shown(row.bytes), fit_text(row, budget),
      fmt::format("{} {}", size_shown(row.plain - row.bytes), percent_text(saved)), sent_text(row),
      flop_text(row.row.work.flop), percent_text(repeated_share(row.row.work)));
}

/// The file of a row, and the command that takes it.
std::string written_line(const PlannedRow& row, std::size_t number) {
  const MeshShape& mesh = row.row.candidate.mesh;
  return fmt::format("row {}: written to {}; next: zero_train --plan --world {} --config {}\n",
                     number, row.written, mesh.replicate * mesh.shard * mesh.tensor, row.written);
}

std::string rows_text(const std::vector<PlannedRow>& rows, std::int64_t budget) {
  std::string text = header_line();
  for (std::size_t i = 0; i < rows.size(); ++i) text += row_line(rows[i], i + 1, budget);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PlannedRow& row = rows[i];
    if (row.row.step_seconds > 0) {
      text += fmt::format("row {}: about {:.3g} s a step, {:.0f} tokens/s in all\n", i + 1,
                          row.row.step_seconds, row.row.tokens / row.row.step_seconds);
    }
    for (const std::string& note : row.notes) text += fmt::format("row {}: {}\n", i + 1, note);
    if (!row.written.empty()) text += written_line(row, i + 1);
  }
  return text;
}

/// What the figures are and are not.
std::string legend(const TrainingAnswer& answer) {
  const Machine& machine = answer.question.machine;
  std::string text = "memory: of the fullest rank, planned by the engine itself";
  if (machine.kind == DeviceKind::cuda) {
    text += ", in the driver's pages of 2 MiB";
    if (!plans_gpu_operations()) {
      text += "; this build has no CUDA: the scratch of operations is a CPU's";
    }
    if (machine.reserve == 0) {
      text +=
          ". Not in it: what CUDA's context, its libraries and NCCL take for themselves; --reserve "
          "keeps that free";
    }
  }
  text +=
      ".\nsaved: beside stage 0 without recompute and with fp32 moments, by closed forms. sent: "
      "by the first rank, along the axes replicate, shard and tensor. FLOP: of a rank and "
      "step (P: 10^15, T: 10^12, G: 10^9, M: 10^6), with the share that recompute repeats. Several "
      "tensor ranks also cut the "
      "residual stream (mesh.sequence_parallel). Not counted: the "
      "staging of checkpoints (run.checkpoint).\n";
  return text;
}

std::string closed_text(const std::vector<PlannedRow>& rows) {
  double worst = 0;
  for (const PlannedRow& row : rows) worst = std::max(worst, std::abs(row.closed_error()));
  return fmt::format("closed forms are within {:.2f} % of these plans\n", 100 * worst);
}

OrderedJson class_bytes(const BytesByClass& bytes) {
  OrderedJson all = OrderedJson::object();
  for (const MemoryClass c : all_memory_classes()) {
    all[std::string(name_of(c))] = bytes[static_cast<std::size_t>(c)];
  }
  return all;
}

OrderedJson row_json(const PlannedRow& row, std::int64_t budget) {
  const Candidate& c = row.row.candidate;
  OrderedJson all{
      {"stage", c.stage},
      {"micro_batch", c.micro},
      {"accumulation", c.accumulation},
      {"sequences_a_step", c.sequences()},
      {"recompute", c.recompute.text()},
      {"mesh",
       {{"replicate", c.mesh.replicate}, {"shard", c.mesh.shard}, {"tensor", c.mesh.tensor}}},
      {"moments", name_of(c.moments)},
      {"dtype", name_of(c.compute)},
      {"bytes", row.bytes},
      {"closed_form_bytes", row.row.bytes},
      {"fits", row.bytes <= budget},
      {"short_bytes", std::max<std::int64_t>(0, row.bytes - budget)},
      {"largest_class", name_of(row.largest_class())},
      {"memory", class_bytes(row.exact.memory.ledger)},
      {"plain_bytes", row.plain},
      {"communication", axes_json(row.exact.traffic, c.mesh)},
      {"flop", row.row.work.flop},
      {"flop_repeated", row.row.work.repeated}};
  all["seconds"] = row.row.step_seconds > 0 ? OrderedJson(row.row.step_seconds) : OrderedJson();
  all["notes"] = row.notes;
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
  const std::int64_t budget = question.machine.budget();
  std::string text = fmt::format(
      "{}: {} parameters; sequences of {} tokens; {}\n{} candidates, {} of them fit by closed "
      "forms\n{}\n\n",
      question.model_text, grouped_digits(question.model.parameter_count()), question.sequence,
      question.machine.text(), grouped_digits(answer.candidates), grouped_digits(answer.fitting),
      order_text(question.machine));
  if (!answer.rows.empty()) text += rows_text(answer.rows, budget) + "\n";
  if (!answer.too_large.empty()) {
    text +=
        answer.rows.empty() ? "those that miss least\n" : "these would cost less, and miss least\n";
    text += rows_text(answer.too_large, budget) + "\n";
  }
  for (const std::string& line : answer.shortfall) text += line + "\n";
  if (!answer.shortfall.empty()) text += "\n";
  return text + legend(answer) + closed_text(answer.rows.empty() ? answer.too_large : answer.rows);
}

OrderedJson json_of(const TrainingAnswer& answer) {
  const TrainingQuestion& question = answer.question;
  const Machine& machine = question.machine;
  return {{"model", question.model_text},
          {"parameters", question.model.parameter_count()},
          {"sequence_length", question.sequence},
          {"machine",
           {{"hosts", machine.hosts},
            {"devices", machine.devices},
            {"kind", machine.kind == DeviceKind::cuda ? "gpu" : "cpu"},
            {"memory", machine.memory},
            {"reserve", machine.reserve}}},
          {"candidates", answer.candidates},
          {"fitting", answer.fitting},
          {"order", order_text(machine)},
          {"planned_with", machine.kind == DeviceKind::cpu || plans_gpu_operations()
                               ? "the device's operations"
                               : "a CPU's operations"},
          {"rows", rows_json(answer.rows, machine.budget())},
          {"too_large", rows_json(answer.too_large, machine.budget())},
          {"shortfall", answer.shortfall}};
}

}  // namespace zero
