// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/config/train_config.h"
#include "launch/process/quantity.h"
#include "launch/train/memory_fit.h"

// What a run is told that does not fit its limit.
namespace zero {
namespace {

std::string with_bytes(std::int64_t bytes) {
  return fmt::format("{} ({} bytes)", size_text(bytes), bytes);
}

/// Calls `consider(change, changed)` with the usual windows and shares of states below memory,
/// where those asked for are larger or less.
template <typename Consider>
void consider_usual_windows(const TrainConfig& config, const Consider& consider) {
  if (!uses_file(config.engine.tiers) && !uses_host(config.engine.tiers)) return;
  const std::string prefix = "zero_optimization.offload_optimizer.";
  const TierOptions usual;
  TrainConfig changed = config;
  TierOptions& tiers = changed.engine.tiers;
  std::vector<std::string> keys;
  if (tiers.windows.buffers > usual.windows.buffers) {
    tiers.windows.buffers = usual.windows.buffers;
    keys.push_back(fmt::format("{}buffer_count {}", prefix, tiers.windows.buffers));
  }
  if (tiers.windows.buffer_elements > usual.windows.buffer_elements) {
    tiers.windows.buffer_elements = usual.windows.buffer_elements;
    keys.push_back(fmt::format("{}buffer_size {}", prefix, tiers.windows.buffer_elements));
  }
  if (tiers.parameters != Tier::device && tiers.fetch_buffers > usual.fetch_buffers) {
    tiers.fetch_buffers = usual.fetch_buffers;
    keys.push_back(
        fmt::format("zero_optimization.offload_param.buffer_count {}", tiers.fetch_buffers));
  }
  if (!keys.empty()) consider(fmt::format("{}", fmt::join(keys, " with ")), changed);
  changed = config;
  const double share = std::exchange(tiers.optimizer_ratio, usual.optimizer_ratio);
  if (tiers.optimizer != Tier::device && share != usual.optimizer_ratio) {
    consider(prefix + "ratio 1.0", changed);
  }
  changed = config;
  const std::int64_t kept = std::exchange(tiers.parameters_in_memory, 0);
  if (tiers.parameters != Tier::device && kept != 0) {
    consider("zero_optimization.offload_param.max_in_cpu 0", changed);
  }
}

/// Changes of the configuration that take less memory: "KEY: 1.20 GiB, which fits".
struct Remedies {
  std::vector<std::string> lines;
  bool one_fits = false;  ///< one of them alone
};

/// Calls `consider(change, changed)` with a folder for what "auto" would move into files. Returns
/// whether one is missing.
template <typename Consider>
bool consider_folder(const TrainConfig& config, const Consider& consider) {
  const std::string states = "zero_optimization.offload_optimizer.";
  const std::string shards = "zero_optimization.offload_param.";
  const bool moves_states = chosen_by_auto(config.values, states + "device");
  const bool moves_shards =
      chosen_by_auto(config.values, shards + "device") && config.engine.stage == 3;
  if (!config.engine.tiers.file.folder.empty() || !(moves_states || moves_shards)) return false;
  TrainConfig changed = config;
  TierOptions& tiers = changed.engine.tiers;
  tiers.file.folder = "nvme_path";  // any: nothing is made by a plan
  if (moves_states) tiers.optimizer = Tier::file;
  if (moves_shards) tiers.parameters = Tier::file;
  consider((moves_states ? states : shards) + "nvme_path with a folder on a disk", changed);
  return true;
}

/// Calls `consider(change, changed)` with optimizer states in a tier, and at stage 3 with
/// parameters there too, unless they are below memory already. `device`: the tier's name in the
/// configuration.
template <typename Consider>
void consider_tier(const TrainConfig& config, Tier tier, std::string_view device,
                   const Consider& consider) {
  const auto key = [&](std::string_view section) {
    return fmt::format("zero_optimization.{}.device \"{}\"", section, device);
  };
  TrainConfig changed = config;
  TierOptions& tiers = changed.engine.tiers;
  if (tier == Tier::file) tiers.file.folder = "nvme_path";  // any: nothing is made by a plan
  const bool away = tiers.optimizer != Tier::device;
  if (!away) {
    tiers.optimizer = tier;
    consider(key("offload_optimizer"), changed);
  }
  if (config.engine.stage < 3 || tiers.parameters != Tier::device) return;
  tiers.parameters = tier;
  const std::string shards = key("offload_param");
  consider(away ? shards : key("offload_optimizer") + " with " + shards, changed);
}

/// The same with every block computed again and its kept input in host memory.
template <typename Consider>
void consider_host_inputs(const TrainConfig& config, const Consider& consider) {
  TrainConfig changed = config;
  RecomputePlan& plan = changed.recompute.plan;
  plan.blocks = RecomputePlan::full(config.model.layers).blocks;
  if (std::exchange(plan.inputs_on_host, true)) return;
  consider("activation_checkpointing.recompute \"full\" with cpu_checkpointing", changed);
}

Remedies remedies(const TrainConfig& config, BackendKind backend, std::int64_t planned) {
  Remedies found;
  const auto consider = [&](const std::string& change, const TrainConfig& changed) {
    const std::int64_t bytes = planned_rank_bytes(changed, backend);
    if (bytes >= planned) return;
    const bool enough = bytes <= config.recompute.memory_limit;
    found.one_fits = found.one_fits || enough;
    found.lines.push_back(
        fmt::format("{}: {}{}", change, size_text(bytes), enough ? ", which fits" : ""));
  };
  const std::int64_t layers = config.model.layers;
  TrainConfig changed = config;
  changed.recompute.plan.blocks = RecomputePlan::full(layers).blocks;
  consider("activation_checkpointing.recompute \"full\"", changed);
  const auto groups = static_cast<std::int64_t>(std::lround(std::sqrt(layers)));
  changed.recompute.plan.blocks = RecomputePlan::grouped(layers, groups).blocks;
  consider(fmt::format("activation_checkpointing.number_checkpoints {}", groups), changed);
  changed = config;
  changed.recompute.plan.outputs = BlockOutputs::again;
  consider("activation_checkpointing.keep_outputs false", changed);
  changed = config;
  changed.batch.accumulation *= std::exchange(changed.batch.micro, 1);
  if (config.batch.micro > 1) {
    consider(fmt::format("train_micro_batch_size_per_gpu 1 with gradient_accumulation_steps {}",
                         changed.batch.accumulation),
             changed);
  }
  changed = config;
  changed.engine.stage = 3;
  changed.engine.reduction = ReductionPolicy::every_micro_batch;
  if (config.engine.stage < 3) consider("zero_optimization.stage 3", changed);
  changed = config;
  changed.engine.compute = DType::bf16;
  if (config.engine.compute == DType::fp32) consider("bf16.enabled", changed);
  changed = config;
  OptimizerConfig& optimizer = changed.engine.optimizer;
  optimizer.moments = MomentFormat::bf16;
  if (optimizer.kind != OptimizerConfig::Kind::sgd || optimizer.momentum > 0) {
    consider("optimizer.params.moments \"bf16\"", changed);
  }
  if (config.run.device == DeviceKind::cpu) {
    if (!consider_folder(config, consider)) consider_tier(config, Tier::file, "nvme", consider);
  } else {
    consider_host_inputs(config, consider);
    consider_tier(config, Tier::host, "cpu", consider);
  }
  consider_usual_windows(config, consider);
  return found;
}

}  // namespace

void check_memory_limit(const TrainConfig& config, BackendKind backend, const RankPlans& plans) {
  const std::int64_t limit = config.recompute.memory_limit;
  const std::int64_t planned = planned_rank_bytes(plans);
  if (limit == 0 || planned <= limit) return;
  const auto [lines, one_fits] = remedies(config, backend, planned);
  fail(
      "{}: the run is planned to use {} of a rank's memory{}; run.memory_limit is {}: short by {}. "
      "{}",
      config.values.source(), with_bytes(planned),
      config.recompute.automatic ? " with every block computed again in backward" : "",
      with_bytes(limit), with_bytes(planned - limit),
      lines.empty()
          ? "Use more ranks, a smaller model or shorter sequences"
          : fmt::format("What would help, as planned{}: {}",
                        one_fits ? "" : " (none is enough alone)", fmt::join(lines, "; ")));
}

}  // namespace zero
