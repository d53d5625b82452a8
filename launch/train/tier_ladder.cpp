// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "device/device.h"
#include "launch/config/train_config.h"
#include "launch/process/quantity.h"
#include "launch/train/memory_fit.h"

namespace zero {
namespace {

/// A move of model states below memory. The ladder of "auto" has its rungs in the order in which
/// runs take them: a run goes down no further than it must to fit.
struct Rung {
  DeviceKind run;      ///< run.device
  MemoryClass states;  ///< optimizer: optimizer states; parameters: shards of parameters
  Tier tier;           ///< where they go
};
constexpr std::array kLadder{
    Rung{DeviceKind::cpu, MemoryClass::optimizer, Tier::file},
    Rung{DeviceKind::cpu, MemoryClass::parameters, Tier::file},
    Rung{DeviceKind::cuda, MemoryClass::optimizer, Tier::host},
    Rung{DeviceKind::cuda, MemoryClass::parameters, Tier::host},
    Rung{DeviceKind::cuda, MemoryClass::optimizer, Tier::file},
    Rung{DeviceKind::cuda, MemoryClass::parameters, Tier::file},
};

/// The states that a section of the configuration moves.
struct MovedStates {
  MemoryClass states;
  std::string section;
  std::string what;
};
const std::array<MovedStates, 2>& moved_states() {
  static const std::array<MovedStates, 2> all{
      MovedStates{MemoryClass::optimizer, "zero_optimization.offload_optimizer.",
                  "optimizer states"},
      MovedStates{MemoryClass::parameters, "zero_optimization.offload_param.", "parameters"}};
  return all;
}
const MovedStates& moved_states(MemoryClass states) {
  return *std::ranges::find(moved_states(), states, &MovedStates::states);
}

bool is_auto(const Configuration& values, const MovedStates& moved) {
  return values.text(moved.section + "device") == "auto";
}

Tier tier_of(const TierOptions& tiers, MemoryClass states) {
  return states == MemoryClass::optimizer ? tiers.optimizer : tiers.parameters;
}

/// Thousandths of what may move of a rung's states are tried.
constexpr std::int64_t kAllParts = 1000;

/// About the elements of a rank's shards of parameters.
std::int64_t shard_elements(const TrainConfig& config) {
  return div_ceil(config.model.parameter_count(),
                  std::int64_t{config.mesh.shard} * config.mesh.tensor);
}

/// `tiers` with so many parts of what `asked` lets a rung move in its tier.
TierOptions moved_down(TierOptions tiers, const Rung& rung, std::int64_t parts,
                       const TrainConfig& asked) {
  const TierOptions& bounds = asked.engine.tiers;
  if (rung.states == MemoryClass::optimizer) {
    tiers.optimizer = rung.tier;
    tiers.optimizer_ratio =
        bounds.optimizer_ratio * static_cast<double>(parts) / static_cast<double>(kAllParts);
    return tiers;
  }
  tiers.parameters = rung.tier;
  const std::int64_t least = bounds.parameters_in_memory;
  const std::int64_t may_move = std::max<std::int64_t>(0, shard_elements(asked) - least);
  tiers.parameters_in_memory = least + may_move * (kAllParts - parts) / kAllParts;
  return tiers;
}

/// Whether "auto" can take a rung.
bool can_take(const Rung& rung, const TrainConfig& config) {
  return rung.run == config.run.device && is_auto(config.values, moved_states(rung.states)) &&
         (rung.states != MemoryClass::parameters || config.engine.stage == 3) &&
         (rung.tier != Tier::file || !config.engine.tiers.file.folder.empty());
}

/// Why no rung for states can be taken; empty: one can.
std::string why_none_can_be_taken(MemoryClass states, const TrainConfig& config) {
  const auto any = [&](const auto& condition) { return std::ranges::any_of(kLadder, condition); };
  if (any([&](const Rung& rung) { return rung.states == states && can_take(rung, config); })) {
    return "";
  }
  if (states == MemoryClass::parameters && config.engine.stage != 3) {
    return fmt::format("ranks have shards of them, which can move, at stage 3, not at stage {}",
                       config.engine.stage);
  }
  return fmt::format("they could move only into files: give {}nvme_path a folder on a local disk",
                     moved_states(states).section);
}

/// A place for model states, and what the ranks' memory is with it.
struct PlacedStates {
  TierOptions tiers;
  RankPlans plans;
};

/// Goes down the ladder until a run fits.
class Descent {
 public:
  Descent(const TrainConfig& asked, BackendKind backend, RankRoom room)
      : asked_(asked), tried_(asked), backend_(backend), room_(std::move(room)) {
    if (!asked.recompute.automatic) return;
    tried_.recompute.plan.blocks = RecomputePlan::full(asked.model.layers).blocks;
  }

  /// As asked if that fits.
  PlacedStates find() {
    PlacedStates least = planned(asked_.engine.tiers);
    at_first_ = planned_rank_bytes(least.plans);
    if (room_.bytes == 0 || fits(least.plans)) return least;
    TierOptions above = asked_.engine.tiers;
    for (const Rung& rung : kLadder) {
      if (!can_take(rung, asked_)) continue;
      PlacedStates moved = planned(moved_down(above, rung, kAllParts, asked_));
      if (is_in_room(moved)) moved = fewest_parts(rung, above, std::move(moved));
      if (fits(moved.plans)) return moved;
      if (planned_rank_bytes(moved.plans) >= planned_rank_bytes(least.plans)) continue;
      // All has moved, and the device is still short: the next rung moves more. Where its host is
      // short, the next one moves the same elsewhere.
      if (!is_in_room(moved)) above = moved.tiers;
      least = std::move(moved);
    }
    return least;
  }

  bool fits(const RankPlans& plans) const {
    return std::ranges::all_of(plans, [&](const auto& plan) {
      const MemoryUse& use = plan.second;
      const bool in_host =
          use.device.in_pages() == 0 || room_.host == 0 || use.on_host() <= room_.host;
      return use.bounded() <= room_.bytes && in_host;
    });
  }
  const RankRoom& room() const { return room_; }
  /// Of a rank with the tiers asked for.
  std::int64_t at_first() const { return at_first_; }

 private:
  PlacedStates planned(const TierOptions& tiers) {
    tried_.engine.tiers = tiers;
    return {tiers, plan_ranks(tried_, backend_)};
  }

  /// As far as the device's memory goes.
  bool is_in_room(const PlacedStates& placed) const {
    return planned_rank_bytes(placed.plans) <= room_.bytes;
  }

  /// The fewest parts with which the run is in its room: all are, none are not.
  PlacedStates fewest_parts(const Rung& rung, const TierOptions& above, PlacedStates all) {
    PlacedStates found = std::move(all);
    std::int64_t few = 0;
    std::int64_t enough = kAllParts;
    while (enough - few > 1) {
      const std::int64_t parts = (few + enough) / 2;
      PlacedStates tried = planned(moved_down(above, rung, parts, asked_));
      if (is_in_room(tried)) {
        enough = parts;
        found = std::move(tried);
      } else {
        few = parts;
      }
    }
    return found;
  }

  const TrainConfig& asked_;
  TrainConfig tried_;
  BackendKind backend_;
  RankRoom room_;
  std::int64_t at_first_ = 0;
};

/// Of a rank's states, in words: "1.20 GiB of its optimizer states are in a file, none in memory".
std::string places_text(const MovedStates& moved, Tier tier, const MemoryUse& use) {
  const std::int64_t charged = at(use.ledger, moved.states);
  const bool file = tier == Tier::file;
  const std::int64_t above = file ? charged : at(use.device.arenas, moved.states);
  const std::int64_t below = file ? at(use.file, moved.states) : charged - above;
  return fmt::format("{} of its {} are in {}, {} stay in {}", size_text(below), moved.what,
                     file ? "a file" : "pinned host memory", size_text(above),
                     use.device.in_pages() > 0 ? "the GPU's" : "memory");
}

/// Why states are where `tiers` have them, with the bytes of the rank that takes most.
std::string why_there(const MovedStates& moved, const TierOptions& tiers, const TrainConfig& asked,
                      const Descent& descent, const RankPlans& plans) {
  const RankRoom& room = descent.room();
  if (room.bytes == 0) return "what a rank may use is not known here; run.memory_limit tells";
  const auto bounded = [](const auto& plan) { return plan.second.bounded(); };
  const MemoryUse& most = std::ranges::max_element(plans, {}, bounded)->second;
  const auto takes = [&](std::int64_t bytes) {
    return fmt::format("a rank takes {}, and may use {} ({})", size_text(bytes),
                       size_text(room.bytes), room.source);
  };
  if (const Tier tier = tier_of(tiers, moved.states); tier != Tier::device) {
    return fmt::format("unmoved,{} {}: {}",
                       asked.recompute.automatic ? " with every block computed again," : "",
                       takes(descent.at_first()), places_text(moved, tier, most));
  }
  if (descent.fits(plans)) return takes(most.bounded());
  const std::string why = why_none_can_be_taken(moved.states, asked);
  return fmt::format("{}; {}", takes(most.bounded()),
                     why.empty() ? "moving them would take no less" : why);
}

/// Puts what "auto" has chosen into the configuration.
void fill_in(Configuration& values, const MovedStates& moved, const TierOptions& tiers,
             const std::string& why) {
  const Tier tier = tier_of(tiers, moved.states);
  const char* const below = tier == Tier::file ? "nvme" : "cpu";
  values.resolve(moved.section + "device", tier == Tier::device ? "none" : below, "auto: " + why);
  if (tier == Tier::device) return;
  if (moved.states == MemoryClass::optimizer) {
    values.resolve(moved.section + "ratio", tiers.optimizer_ratio, "auto: no more than must move");
  } else {
    values.resolve(moved.section + "max_in_cpu", tiers.parameters_in_memory,
                   "auto: no more than must move");
  }
}

}  // namespace

RankPlans fit_memory(TrainConfig& config, BackendKind backend, const RankRoom& machine) {
  if (!tiers_are_auto(config.values)) return choose_recompute(config, backend);
  RankRoom room = machine;
  if (const std::int64_t limit = config.recompute.memory_limit; limit > 0) {
    room.bytes = limit;
    room.source = "run.memory_limit";
  }
  const TrainConfig asked = config;
  Descent descent(asked, backend, std::move(room));
  PlacedStates found = descent.find();
  config.engine.tiers = found.tiers;
  if (config.recompute.automatic) found.plans = choose_recompute(config, backend);
  for (const MovedStates& moved : moved_states()) {
    if (!is_auto(asked.values, moved)) continue;
    fill_in(config.values, moved, found.tiers,
            why_there(moved, found.tiers, asked, descent, found.plans));
  }
  return std::move(found.plans);
}

}  // namespace zero
