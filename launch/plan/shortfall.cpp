// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/message_text.h"
#include "launch/plan/training_answer.h"
#include "launch/plan/written_config.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

constexpr std::int64_t kLeastSequence = 128;

/// Only the cheapest candidates in memory: whole shards, the smallest micro-batch, moments and
/// accumulation. With --batch all micro-batches stay, because smaller ones keep more partial sums.
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
  ClosedForms forms(config_of(whole, all.front()), whole.machine);
  return std::ranges::any_of(all, [&](const Candidate& each) {
    return Shortage::of(forms.memory(each), whole.machine).none();
  });
}

/// The first question that fits of those that `next` makes, one of another while it says true.
template <typename Next>
std::optional<TrainingQuestion> first_that_fits(TrainingQuestion question, const Next& next) {
  while (next(question)) {
    if (fits(question)) return question;
  }
  return std::nullopt;
}

/// Of stages that --stage leaves out, the lowest above the asked ones that fits.
std::string about_stages(const TrainingQuestion& question) {
  if (question.axes.stages.empty() || question.machine.world() == 1) return "";
  constexpr int kHighest = 3;
  int tried = std::ranges::max(question.axes.stages);
  if (tried == kHighest) return "";
  const auto higher = first_that_fits(question, [&](TrainingQuestion& of) {
    of.axes.stages = {++tried};
    return tried <= kHighest;
  });
  return higher
             ? fmt::format("a higher stage helps: --stage {} fits by the closed forms", tried)
             : fmt::format("higher stages do not help: --stage {} does not fit either", kHighest);
}

/// Hosts are doubled; tensor degrees stay within a host, so every candidate stays.
std::string about_hosts(const TrainingQuestion& question) {
  const int devices = question.machine.devices;
  const int most = Machine::kMostInAll / devices;
  int tried = question.machine.hosts;
  const auto more = first_that_fits(question, [&](TrainingQuestion& of) {
    if (2 * tried > most) return false;
    of.machine.hosts = tried *= 2;
    return true;
  });
  if (tried == question.machine.hosts) return "";
  return fmt::format("more devices {}: {} x {} (hosts x devices) {}", more ? "help" : "do not help",
                     tried, devices, more ? "fit by the closed forms" : "do not fit either");
}

std::string about_sequence(const TrainingQuestion& question) {
  const auto shorter = first_that_fits(
      question, [](TrainingQuestion& of) { return (of.sequence /= 2) >= kLeastSequence; });
  if (!shorter) {
    return fmt::format("shorter sequences do not help: those of {} tokens do not fit either",
                       kLeastSequence);
  }
  return fmt::format("shorter sequences help: --sequence {} fits by the closed forms",
                     shorter->sequence);
}

std::string about_micro_batches(const TrainingQuestion& question) {
  const auto fewer = first_that_fits(question, [](TrainingQuestion& of) {
    CandidateAxes& axes = of.axes;
    axes.accumulations = {std::ranges::min(axes.accumulations)};
    return ((axes.batch ? *axes.batch : axes.accumulations.front()) /= 2) >= 1;
  });
  if (!fewer) return "";
  const CandidateAxes& axes = fewer->axes;
  return fmt::format("fewer micro-batches help: --{} {} fits by the closed forms",
                     axes.batch ? "batch" : "accumulation",
                     axes.batch ? *axes.batch : axes.accumulations.front());
}

/// Whether the question with `offload` alone fits, or nothing if it was asked about that.
std::optional<bool> fits_with(TrainingQuestion question, const Offload& offload) {
  std::vector<Offload>& offloads = question.axes.offloads;
  if (std::ranges::count(offloads, offload) > 0) return std::nullopt;
  offloads = {offload};
  if (offload.parameters != Tier::device) question.axes.stages = {3};
  return fits(question);
}

/// Model states below the memory of the device: the first that fits. Files of a GPU's states take
/// as much of its memory as host memory does, and are asked about if that is known, and so bounded.
std::string about_tiers(const TrainingQuestion& question) {
  const bool gpu = question.machine.kind == DeviceKind::cuda;
  std::vector<Tier> asked_about;
  if (gpu) asked_about.push_back(Tier::host);
  if (!gpu || question.machine.host_memory != 0) asked_about.push_back(Tier::file);
  std::string not_enough;
  for (const std::string& name : kOffloads) {
    const Offload offload = Offload::from(name);
    if (std::ranges::none_of(asked_about, [&](Tier tier) { return offload.uses(tier); })) continue;
    const std::optional<bool> enough = fits_with(question, offload);
    if (!enough) continue;
    const bool all = offload.parameters != Tier::device;
    const std::string what = fmt::format("optimizer states{} in {}", all ? " and parameters" : "",
                                         offload.uses(Tier::host) ? "host memory" : "files");
    if (*enough) {
      return fmt::format(
          "{} help: --offload {}{} (zero_optimization.offload_optimizer{}) fits by "
          "the closed forms",
          what, name, all ? " --stage 3" : "", all ? ", offload_param" : "");
    }
    not_enough = fmt::format("{} (--offload {}) are not enough{}", what, name, all ? "" : " alone");
  }
  return not_enough;
}

/// Of GPUs: inputs of blocks, every one computed again whole.
std::string about_kept_inputs(const TrainingQuestion& question) {
  if (std::ranges::count(question.axes.kept_inputs, KeptInputPlace::host) > 0) return "";
  TrainingQuestion moved = question;
  moved.axes.kept_inputs = {KeptInputPlace::host};
  moved.axes.recomputes = {{RecomputeChoice::Kind::interval, 1}};
  return fits(moved) ? "kept inputs in host memory help: --kept-inputs host --recompute full "
                       "(activation_checkpointing.cpu_checkpointing) fits by the closed forms"
                     : "";
}

/// What the least candidate takes, and misses.
std::string missing_text(const TrainingQuestion& question, const PlannedRow& least) {
  const Machine& machine = question.machine;
  const Shortage& shortage = least.shortage;
  std::string text = "no candidate fits";
  if (shortage.of_device > 0) {
    const MemoryClass largest = least.largest_class();
    text += fmt::format(": the least takes {} of {}, short by {}; most of it is {} ({})",
                        size_text(least.bytes), size_text(machine.budget()),
                        size_text(shortage.of_device), name_of(largest),
                        size_text(at(least.exact.memory.ledger, largest)));
  }
  if (shortage.of_host == 0) return text;
  return text + fmt::format("{} the {} of a host pin {} of its {}, short by {}",
                            shortage.of_device > 0 ? ";" : ": of the least,",
                            counted(machine.devices, "rank"),
                            size_text(host_bytes(least.exact.memory, machine)),
                            size_text(machine.host_memory), size_text(shortage.of_host));
}

}  // namespace

std::vector<std::string> shortfall_lines(const TrainingQuestion& question,
                                         const PlannedRow& least) {
  const BytesByClass& ledger = least.exact.memory.ledger;
  std::vector<std::string> lines{
      missing_text(question, least),
      fmt::format(
          "optimizer states are {} of it, all model states {}, activations {}; not offered "
          "here: tiers below memory, of gradients; LoRA, of gradients and optimizer states; "
          "pipeline stages, of all; ring attention over long sequences, of activations",
          size_text(at(ledger, MemoryClass::optimizer)), size_text(model_state_bytes(ledger)),
          size_text(at(ledger, MemoryClass::activations)))};
  for (const auto& about : {about_tiers, about_kept_inputs, about_stages, about_hosts,
                            about_sequence, about_micro_batches}) {
    if (std::string line = about(question); !line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace zero
