// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "launch/config/train_config.h"

namespace zero {
namespace {

/// What one file of a rank holds, and the key that keeps a part of it in memory.
struct FiledText {
  std::string what;
  std::string key;
};
FiledText filed_text(const TierOptions& tiers) {
  const std::string ratio = "zero_optimization.offload_optimizer.ratio";
  const std::string most = "zero_optimization.offload_param.max_in_cpu";
  if (tiers.parameters != Tier::file) return {"optimizer states", ratio};
  if (tiers.optimizer != Tier::file) return {"parameters", most};
  return {"optimizer states and parameters", ratio + ", " + most};
}

/// What takes less host memory.
std::string less_memory(const TrainConfig& config) {
  const TierOptions& tiers = config.engine.tiers;
  if (config.run.device != DeviceKind::cpu) {
    const bool states = tiers.optimizer == Tier::host;
    const bool shards = tiers.parameters == Tier::host;
    std::vector<std::string> takers;
    if (states) takers.emplace_back("optimizer states");
    if (shards) takers.emplace_back("parameters");
    if (config.recompute.plan.inputs_on_host) takers.emplace_back("kept inputs of blocks");
    if (takers.empty()) takers.emplace_back("windows of files");
    return fmt::format(
        "{} of a GPU take it, pinned: more ranks or hosts at a higher stage, {}{}{}or a smaller "
        "batch take less",
        fmt::join(takers, ", "),
        states ? "a smaller optimizer.params.moments, a lower "
                 "zero_optimization.offload_optimizer.ratio, "
               : "",
        shards ? "\"nvme\" as zero_optimization.offload_param.device, " : "",
        config.recompute.plan.inputs_on_host ? "no activation_checkpointing.cpu_checkpointing, "
                                             : "");
  }
  const std::string states = "zero_optimization.offload_optimizer.";
  const bool without_folder =
      chosen_by_auto(config.values, states + "device") && tiers.file.folder.empty();
  const std::string files =
      without_folder ? fmt::format("a folder on a disk for \"auto\" ({}nvme_path)", states)
                     : "optimizer states on NVMe, at stage 3 parameters too,";
  return fmt::format(
      "more ranks or hosts at a higher stage, recompute, {} or a smaller batch take less: --plan "
      "and run.memory_limit tell what would do",
      uses_file(tiers) ? "smaller windows of states" : files);
}

}  // namespace

TierPlace tier_place(const TrainConfig& config) {
  const TierOptions& tiers = config.engine.tiers;
  const auto [what, keeps] = filed_text(tiers);
  return {
      .key = tier_folder_key(config.values),
      .folder = tiers.file.folder,
      .what = what,
      .waits = "step",
      .advice = fmt::format("use more hosts, or keep a part of the {} in memory ({})", what, keeps),
      .memory_advice = less_memory(config),
      .counts_memory = config.run.device == DeviceKind::cpu || uses_host(tiers) ||
                       uses_file(tiers) || config.recompute.plan.inputs_on_host};
}

}  // namespace zero
