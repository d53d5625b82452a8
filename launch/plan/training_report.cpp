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
    "{:>3} {:>5} {:>5} x {:<5} {:<11} {:<13} {:<7} {:<5} {:>10}  {:<32} {:>17}  {:<34} {:>9} {:>8}";
/// Behind that, where rows have values below the device's memory.
constexpr const char* kBelowFormat = "  {:<16}  {:>23} {:>10}";

constexpr const char* kStagingNotCounted = "the staging of checkpoints (run.checkpoint)";

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

/// "6.0 KiB / 1.2 GiB / -": along replicate, shard and tensor.
std::string sent_text(const PlannedRow& row) {
  std::vector<std::string> texts;
  for (const Axis axis : kAllAxes) {
    const bool alone = row.ranked.candidate.mesh.size(axis) == 1;
    texts.push_back(alone ? "-" : size_text(row.exact.traffic.of(axis).total()));
  }
  return fmt::format("{}", fmt::join(texts, " / "));
}

/// Whether it fits, and by how much, or what it is short of.
std::string fits_text(const PlannedRow& row, const Machine& machine) {
  if (row.shortage.none())
    return fmt::format("fits, {} free", size_text(machine.budget() - row.bytes));
  const std::string of_host = row.shortage.of_host == 0
                                  ? ""
                                  : "short " + size_text(row.shortage.of_host) + " of the host's";
  if (row.shortage.of_device == 0) return of_host;
  const MemoryClass largest = row.largest_class();
  return fmt::format("short {}; {} {}{}{}", size_text(row.shortage.of_device), name_of(largest),
                     size_text(at(row.exact.memory.ledger, largest)), of_host.empty() ? "" : "; ",
                     of_host);
}

/// What is below the device's memory, in the words of the flags: "cpu-all + inputs".
std::string below_text(const Candidate& candidate) {
  const bool inputs = candidate.kept_inputs == KeptInputPlace::host;
  return name_of(candidate.offload) + (inputs ? " + inputs" : "");
}

/// Of a rank, and of all ranks of a host: "12.00 GiB / 96.00 GiB".
std::string host_text(const PlannedRow& row, const Machine& machine) {
  const MemoryUse& memory = row.exact.memory;
  if (machine.kind == DeviceKind::cpu) return "-";
  return fmt::format("{} / {}", size_text(memory.on_host()),
                     size_text(host_bytes(memory, machine)));
}

/// Whether the question asks for values below the memory of the device.
bool asks_below(const TrainingQuestion& question) {
  const auto is_below = [](const Offload& each) { return each != Offload{}; };
  return std::ranges::any_of(question.axes.offloads, is_below) ||
         std::ranges::count(question.axes.kept_inputs, KeptInputPlace::host) > 0;
}

std::string row_line(const PlannedRow& row, std::size_t number, const TrainingQuestion& question) {
  const Candidate& c = row.ranked.candidate;
  const double saved = 1 - static_cast<double>(row.bytes) / static_cast<double>(row.plain);
  std::string line =
      fmt::format(kRowFormat, number, c.stage, c.micro, c.accumulation, c.recompute.text(),
                  c.mesh.text(), name_of(c.moments), name_of(c.compute), size_text(row.bytes),
                  fits_text(row, question.machine),
                  fmt::format("{} {}", size_text(row.plain - row.bytes), percent_text(saved)),
                  sent_text(row), count_text(row.ranked.work.flop),
                  percent_text(row.ranked.work.repeated / row.ranked.work.flop));
  if (!asks_below(question)) return line + "\n";
  const std::int64_t filed = sum_of(row.exact.memory.file);
  return line +
         fmt::format(kBelowFormat, below_text(c), host_text(row, question.machine),
                     filed == 0 ? "-" : size_text(filed)) +
         "\n";
}

std::string rows_text(const std::vector<PlannedRow>& rows, const TrainingQuestion& question) {
  std::string text = fmt::format(kRowFormat, "", "stage", "micro", "accum", "recompute",
                                 "mesh r x s x t", "moments", "dtype", "memory", "", "saved",
                                 "sent a step, r / s / t", "FLOP", "repeated");
  if (asks_below(question))
    text += fmt::format(kBelowFormat, "offload", "pinned, rank / host", "in a file");
  text += "\n";
  std::string below;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PlannedRow& row = rows[i];
    text += row_line(row, i + 1, question);
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

OrderedJson row_json(const PlannedRow& row, const Machine& machine) {
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
                  {"kept_inputs", name_of(c.kept_inputs)},
                  {"bytes", row.bytes},
                  {"closed_form_bytes", row.ranked.bytes},
                  {"fits", row.shortage.none()},
                  {"short_bytes", row.shortage.of_device},
                  {"largest_class", name_of(row.largest_class())},
                  {"memory", classes},
                  {"file", listed_json(row.exact.memory.file)},
                  {"pinned_bytes", row.exact.memory.host},
                  {"host_bytes", host_bytes(row.exact.memory, machine)},
                  {"host_short_bytes", row.shortage.of_host},
                  {"file_bytes_a_step", std::llround(row.ranked.work.filed)},
                  {"copied_bytes_a_step", std::llround(row.ranked.work.copied)},
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

OrderedJson rows_json(const std::vector<PlannedRow>& rows, const Machine& machine) {
  OrderedJson all = OrderedJson::array();
  for (const PlannedRow& row : rows) all.push_back(row_json(row, machine));
  return all;
}

}  // namespace

std::string text_of(const TrainingAnswer& answer) {
  const TrainingQuestion& question = answer.question;
  const Machine& machine = question.machine;
  std::string text = fmt::format(
      "{}: {} parameters; sequences of {}; {}\n{}, {} of them fit by closed forms\n{}\n\n",
      question.model_text, question.model.parameter_count(), counted(question.sequence, "token"),
      machine.text(), counted(answer.candidates, "candidate"), answer.fitting, order_text(machine));
  if (!answer.rows.empty()) text += rows_text(answer.rows, question);
  if (!answer.too_large.empty()) {
    text +=
        answer.rows.empty() ? "those that miss least\n" : "these would cost less, and miss least\n";
    text += rows_text(answer.too_large, question);
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
          {"rows", rows_json(answer.rows, machine)},
          {"too_large", rows_json(answer.too_large, machine)},
          {"shortfall", answer.shortfall}};
}

}  // namespace zero
