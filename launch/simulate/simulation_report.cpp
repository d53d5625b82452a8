// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launch/process/quantity.h"
#include "launch/simulate/simulation.h"

namespace zero {
namespace {

using nlohmann::ordered_json;

std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }

/// What of the collectives ran beside compute.
double hidden(const SimulatedRank& rank) {
  const double all = rank.collective_seconds();
  return all > 0 ? std::max(0.0, 1 - rank.exposed_seconds / all) : 1;
}

std::string exposed_text(const SimulatedRank& rank) {
  if (rank.collective_seconds() == 0) return "";
  std::string text = fmt::format("\ncommunication of a step: {}, {:.0f} % hidden; exposed {}\n",
                                 milliseconds(rank.collective_seconds()), 100 * hidden(rank),
                                 milliseconds(rank.exposed_seconds));
  for (const auto& [kind, seconds] : rank.exposed) {
    text += fmt::format("  {:<32} {:>14}\n", "exposed at " + kind, milliseconds(seconds));
  }
  for (std::size_t i = 0; i < kLinkLevels; ++i) {
    if (rank.collectives[i] == 0) continue;
    text += fmt::format("  {:<32} {:>14}\n", name_of(static_cast<LinkLevel>(i)),
                        milliseconds(rank.collectives[i]));
  }
  return text;
}

std::string failures_text(const Failures& failures) {
  const double interval = failures.best_interval();
  return fmt::format(
      "\na failure in {}, {} a checkpoint, {} to restart: save every {} of training, and {:.2f} % "
      "of the time is training that is kept\n",
      duration_text(failures.between), duration_text(failures.save),
      duration_text(failures.restart), duration_text(interval), 100 * failures.goodput(interval));
}

}  // namespace

std::string text_of(const Simulation& simulation) {
  const Machine& machine = simulation.machine;
  const SimulatedRank& rank = simulation.slowest();
  std::string text = fmt::format(
      "simulated: {}, mesh {} (replicate x shard x tensor), stage {}, {}\n", machine.text(),
      simulation.mesh.text(), simulation.stage, name_of(simulation.backend));
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "a step: {}, {} tokens/s; FLOP share {:.1f} %; limited by {}\n",
                 milliseconds(simulation.step_seconds), count_text(simulation.tokens_per_second()),
                 100 * simulation.flop_share, simulation.limited_by);
  fmt::format_to(out, "  {:<32} {:>14}\n  {:<32} {:>14}\n  {:<32} {:>14}\n", "products",
                 milliseconds(rank.compute.arithmetic), "memory", milliseconds(rank.compute.memory),
                 "submission and slow-down", milliseconds(rank.other_seconds()));
  if (rank.compute.measured > 0) {
    const double work = rank.compute.arithmetic + rank.compute.memory;
    fmt::format_to(out, "  {:.0f} % of compute by rates of {}\n",
                   100 * rank.compute.measured / work, machine.times.operations);
  }
  if (rank.compute.repeated > 0) {
    fmt::format_to(out, "  {:.1f} % of the FLOP are computed again\n",
                   100 * rank.compute.repeated / (rank.compute.flop + rank.compute.repeated));
  }
  for (const SimulatedRank& each : simulation.ranks) {
    if (simulation.ranks.size() == 1) break;
    fmt::format_to(out, "  rank {}, for {} ranks: compute {}, exposed communication {}\n",
                   each.rank, each.stands_for,
                   milliseconds(each.compute.arithmetic + each.compute.memory),
                   milliseconds(each.exposed_seconds));
  }
  text += exposed_text(rank);
  if (rank.traffic.total().total() > 0) text += traffic_text(rank.traffic, simulation.mesh);
  const double share =
      static_cast<double>(simulation.bytes) / static_cast<double>(machine.budget());
  fmt::format_to(out, "\nmemory of a rank: {} of {} ({:.1f} %){}\n",
                 both_units(static_cast<double>(simulation.bytes)),
                 both_units(static_cast<double>(machine.budget())), 100 * share,
                 share > 1 ? ": it does not fit" : "");
  if (simulation.failures) text += failures_text(*simulation.failures);
  return text;
}

ordered_json json_of(const Simulation& simulation) {
  const Machine& machine = simulation.machine;
  const SimulatedRank& slowest = simulation.slowest();
  ordered_json ranks = ordered_json::array();
  for (const SimulatedRank& rank : simulation.ranks) {
    ordered_json links = ordered_json::object();
    for (std::size_t i = 0; i < kLinkLevels; ++i) {
      links[std::string(name_of(static_cast<LinkLevel>(i)))] = rank.collectives[i];
    }
    ranks.push_back({{"rank", rank.rank},
                     {"stands_for", rank.stands_for},
                     {"step_seconds", rank.step_seconds},
                     {"product_seconds", rank.compute.arithmetic},
                     {"memory_seconds", rank.compute.memory},
                     {"measured_seconds", rank.compute.measured},
                     {"other_seconds", rank.other_seconds()},
                     {"flop", rank.compute.flop},
                     {"repeated_flop", rank.compute.repeated},
                     {"collective_seconds", rank.collective_seconds()},
                     {"collective_seconds_by_level", std::move(links)},
                     {"exposed_seconds", rank.exposed_seconds},
                     {"exposed_seconds_by_unit", rank.exposed},
                     {"communication_by_axis", axes_json(rank.traffic, simulation.mesh)}});
  }
  ordered_json json{{"world", simulation.mesh.ranks()},
                    {"hosts", machine.hosts},
                    {"stage", simulation.stage},
                    {"mesh", mesh_json(simulation.mesh)},
                    {"backend", name_of(simulation.backend)},
                    {"step_seconds", simulation.step_seconds},
                    {"tokens", simulation.tokens},
                    {"tokens_per_second", simulation.tokens_per_second()},
                    {"flop_share", simulation.flop_share},
                    {"exposed_seconds", slowest.exposed_seconds},
                    {"hidden_share", hidden(slowest)},
                    {"limited_by", simulation.limited_by},
                    {"memory_bytes", simulation.bytes},
                    {"memory_limit_bytes", machine.budget()},
                    {"ranks", std::move(ranks)}};
  if (simulation.failures) {
    const double interval = simulation.failures->best_interval();
    json["failures"] = {{"between_seconds", simulation.failures->between},
                        {"save_seconds", simulation.failures->save},
                        {"restart_seconds", simulation.failures->restart},
                        {"best_interval_seconds", interval},
                        {"goodput", simulation.failures->goodput(interval)}};
  }
  return json;
}

}  // namespace zero
