// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/message_text.h"
#include "launch/config/option.h"
#include "launch/config/train_config.h"
#include "launch/process/quantity.h"
#include "launch/train/plan.h"

namespace zero {
namespace {

const std::string kStates = "zero_optimization.offload_optimizer";
const std::string kShards = "zero_optimization.offload_param";
/// Of the first section: used by updates of whatever is in the file.
const std::vector<std::string> kOfWindows{"buffer_count", "buffer_size", "pipeline_read",
                                          "pipeline_write", "pipeline"};
/// Of either section, with values in host memory.
const std::vector<std::string> kOfHostMemory{"buffer_count",   "buffer_size", "pipeline_read",
                                             "pipeline_write", "pipeline",    "ratio",
                                             "max_in_cpu"};

/// A line on the given keys of a section without "nvme" that would take effect with it, if there
/// are any; those in `used` do so anyway.
void say_idle(const Configuration& values, const std::string& section, std::string_view what,
              const std::vector<std::string>& used, std::vector<std::string>& lines) {
  std::vector<std::string> keys;
  for (const std::string& name : keys_of_section(section)) {
    const std::string key = section + "." + name;
    const bool counts = name == "device" || std::ranges::count(used, name) > 0 ||
                        find_option(key)->handling != Handling::honoured;
    if (!counts && values.given(key) && !values.is_null(key)) keys.push_back(key);
  }
  if (keys.empty()) return;
  lines.push_back(
      fmt::format("{} {} nothing: {}.device is \"{}\", and \"nvme\" alone puts {} in files",
                  fmt::join(keys, ", "), keys.size() == 1 ? "changes" : "change", section,
                  values.text(section + ".device"), what));
}

/// What "auto" has made of the device of a section, and why.
void say_auto(const Configuration& values, const std::string& section,
              std::vector<std::string>& lines) {
  const Configuration::Value& device = values.at(section + ".device");
  const std::string why = device.source.substr(device.source.find(' ') + 1);
  lines.push_back(fmt::format("{}.device \"auto\" is {}: {}", section, device.value.dump(), why));
}

/// What is in host memory on a CPU in any case.
void say_host_memory(const Configuration& values, std::vector<std::string>& lines) {
  const auto say = [&](const std::string& key, bool asked, std::string_view what) {
    if (!asked) return;
    lines.push_back(
        fmt::format("{} changes nothing: {} is in host memory on a CPU in any case", key, what));
  };
  say(kStates + ".device \"cpu\"", values.text(kStates + ".device") == "cpu",
      "what optimizers keep");
  say(kShards + ".device \"cpu\"", values.text(kShards + ".device") == "cpu",
      "what stage 3 shards");
  const std::string kept = "activation_checkpointing.cpu_checkpointing";
  say(kept, values.boolean(kept), "what blocks keep");
}

std::string states_line(const TierOptions& tiers) {
  const bool host = tiers.optimizer == Tier::host;
  return fmt::format(
      "optimizer states{} are in {}, updated in {} windows{} of {} elements, or of the longest "
      "share of a unit if that is shorter",
      tiers.optimizer_ratio < 1 ? fmt::format(" of whole units, {:.4g} % of the elements at most,",
                                              100 * tiers.optimizer_ratio)
                                : "",
      host ? "pinned host memory" : "a file of each rank in " + tiers.file.folder,
      tiers.windows.buffers, host ? " in the GPU's" : "", tiers.windows.buffer_elements);
}

std::string shards_line(const TierOptions& tiers) {
  const bool host = tiers.parameters == Tier::host;
  return fmt::format("shards of parameters{} are in {}, {} into {} before their gathers",
                     tiers.parameters_in_memory > 0
                         ? fmt::format(", but for whole units of {} elements of a rank at most,",
                                       tiers.parameters_in_memory)
                         : "",
                     host ? "pinned host memory" : "a file of each rank in " + tiers.file.folder,
                     host ? "copied" : "read",
                     counted(tiers.fetch_buffers, "buffer") + (host ? " of the GPU's" : ""));
}

/// A device of shards that takes effect at stage 3 alone; empty: none is asked for.
std::string asked_of_shards(const TrainConfig& config) {
  const std::string asked = config.values.text(kShards + ".device");
  const bool on_gpu = config.run.device != DeviceKind::cpu;
  return asked == "nvme" || (on_gpu && asked == "cpu") ? asked : "";
}

/// What one file of a rank holds, and the key that keeps a part of it in memory.
struct FiledText {
  std::string what;
  std::string key;
};
FiledText filed_text(const TierOptions& tiers) {
  const std::string ratio = kStates + ".ratio";
  const std::string most = kShards + ".max_in_cpu";
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
  const bool without_folder =
      chosen_by_auto(config.values, kStates + ".device") && tiers.file.folder.empty();
  const std::string files =
      without_folder ? fmt::format("a folder on a disk for \"auto\" ({}.nvme_path)", kStates)
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

std::vector<std::string> tier_lines(const TrainConfig& config) {
  std::vector<std::string> lines;
  const Configuration& values = config.values;
  const TierOptions& tiers = config.engine.tiers;
  if (config.run.device == DeviceKind::cpu) say_host_memory(values, lines);
  const bool states_by_auto = chosen_by_auto(values, kStates + ".device");
  const bool shards_by_auto = chosen_by_auto(values, kShards + ".device");
  if (states_by_auto) say_auto(values, kStates, lines);
  if (shards_by_auto) say_auto(values, kShards, lines);
  if (tiers.optimizer != Tier::device) {
    lines.push_back(states_line(tiers));
    if (tiers.optimizer == Tier::host) say_idle(values, kStates, "states", kOfHostMemory, lines);
  } else if (!states_by_auto) {
    const bool updates = tiers.parameters != Tier::device;
    say_idle(values, kStates, "states", updates ? kOfWindows : std::vector<std::string>{}, lines);
  }
  const std::string asked = asked_of_shards(config);
  if (tiers.parameters != Tier::device) {
    lines.push_back(shards_line(tiers));
    if (tiers.parameters == Tier::host) say_idle(values, kShards, "shards", kOfHostMemory, lines);
  } else if (!asked.empty()) {
    lines.push_back(fmt::format(
        "{}.device \"{}\" changes nothing: ranks have shards of "
        "parameters, which {} can hold, at stage 3, not at stage {}",
        kShards, asked, asked == "nvme" ? "files" : "host memory", config.engine.stage));
  } else if (!shards_by_auto) {
    say_idle(values, kShards, "parameters", {}, lines);
  }
  if (uses_file(tiers)) return lines;
  for (const std::string& key : keys_of_section("aio")) {
    if (!values.given("aio." + key)) continue;
    lines.emplace_back("aio changes nothing: no states are on NVMe");
    break;
  }
  return lines;
}

std::vector<std::string> tier_share_lines(const TrainConfig& config, const MemoryUse& planned,
                                          std::string_view transfers) {
  const TierOptions& tiers = config.engine.tiers;
  std::vector<std::string> lines;
  const auto say = [&](MemoryClass of, std::string_view what, bool whole, const std::string& why) {
    const std::int64_t file = at(planned.file, of);
    if (file == 0) {
      lines.push_back(fmt::format("no {} are in files: {}", what, why));
      return;
    }
    const double all = static_cast<double>(file + at(planned.ledger, of));
    const std::string part =
        whole ? "" : fmt::format("{:.0f} % of ", 100 * static_cast<double>(file) / all);
    lines.push_back(fmt::format("{}a rank's {}, {}, are in its file", part, what, size_text(file)));
  };
  if (tiers.optimizer == Tier::file) {
    say(MemoryClass::optimizer, "optimizer states", tiers.optimizer_ratio >= 1,
        fmt::format("no unit fits into {}.ratio, {:.4g}", kStates, tiers.optimizer_ratio));
  }
  if (tiers.optimizer == Tier::host) {
    const std::int64_t host = at(planned.ledger, MemoryClass::optimizer) -
                              at(planned.device.arenas, MemoryClass::optimizer);
    lines.push_back(host > 0
                        ? fmt::format("{} of a rank's optimizer states are in pinned host memory",
                                      size_text(host))
                        : fmt::format("no optimizer states are in host memory: no unit fits into "
                                      "{}.ratio, {:.4g}",
                                      kStates, tiers.optimizer_ratio));
  }
  if (tiers.parameters == Tier::file) {
    say(MemoryClass::parameters, "parameters", false,
        fmt::format("each unit is small or whole, or fits into {}.max_in_cpu, {}", kShards,
                    tiers.parameters_in_memory));
  }
  if (const std::int64_t file = sum_of(planned.file); file > 0) {
    lines.push_back(fmt::format("a rank's file, {} in {}, is moved through {}", size_text(file),
                                tiers.file.folder, transfers));
  }
  return lines;
}

}  // namespace zero
