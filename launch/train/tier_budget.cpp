// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "launch/config/option.h"
#include "launch/config/train_config.h"
#include "launch/train/plan.h"

namespace zero {
namespace {

const std::string kOffload = "zero_optimization.offload_optimizer.";
const std::string kNvmePath = kOffload + "nvme_path";

bool states_in_files(const TrainConfig& config) {
  return config.engine.tiers.optimizer == Tier::file;
}

/// The given keys that take effect where states are in files, and only there.
std::vector<std::string> idle_keys(const Configuration& values) {
  std::vector<std::string> keys;
  for (const std::string& name : keys_of_section(kOffload.substr(0, kOffload.size() - 1))) {
    const std::string key = kOffload + name;
    const bool used = name == "device" || find_option(key)->handling != Handling::honoured;
    if (!used && values.given(key) && !values.is_null(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace

TierPlace tier_place(const TrainConfig& config) {
  return {.key = kNvmePath,
          .folder = config.engine.tiers.file.folder,
          .what = "optimizer states",
          .waits = "update",
          .advice = fmt::format("use more hosts, or keep a part of the states in memory ({}ratio)",
                                kOffload),
          .memory_advice =
              "more ranks or hosts at a higher stage, recompute, optimizer states on NVMe or a "
              "smaller batch take less: --plan and run.memory_limit tell what would do",
          .counts_memory = config.run.device == DeviceKind::cpu};
}

std::vector<std::string> check_tier_budget(const TrainConfig& config,
                                           std::span<const TierNeeds> ranks,
                                           files::FileSystem& disk) {
  return check_tier_room(tier_place(config), ranks, disk);
}

std::vector<std::string> agree_on_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                              Communicator& ranks, Device& device,
                                              files::FileSystem& disk, const HostIdentity& host) {
  return agree_on_tier_room(tier_place(config), needs, ranks, device, disk, host);
}

std::vector<std::string> tier_lines(const TrainConfig& config) {
  std::vector<std::string> lines;
  const Configuration& values = config.values;
  const std::string in_memory = "is in host memory on a CPU in any case";
  const auto say = [&](const std::string& key, bool asked, std::string_view what) {
    if (asked) lines.push_back(fmt::format("{} changes nothing: {} {}", key, what, in_memory));
  };
  const std::string parameters = "zero_optimization.offload_param.device";
  say(kOffload + "device \"cpu\"", values.text(kOffload + "device") == "cpu",
      "what optimizers keep");
  say(parameters + " \"cpu\"", values.text(parameters) == "cpu", "what stage 3 shards");
  say("activation_checkpointing.cpu_checkpointing",
      values.boolean("activation_checkpointing.cpu_checkpointing"), "what blocks keep");
  const TierOptions& tiers = config.engine.tiers;
  if (states_in_files(config)) {
    lines.push_back(fmt::format(
        "optimizer states{} are in a file of each rank in {}, updated in {} windows of {} elements "
        "at most",
        tiers.optimizer_ratio < 1
            ? fmt::format(" of whole units, {:.4g} % of the elements at most,",
                          100 * tiers.optimizer_ratio)
            : "",
        tiers.file.folder, tiers.windows.buffers, tiers.windows.buffer_elements));
    return lines;
  }
  const std::vector<std::string> idle = idle_keys(values);
  if (!idle.empty()) {
    lines.push_back(
        fmt::format("{} {} nothing: {}device is \"{}\", and \"nvme\" alone puts states in files",
                    fmt::join(idle, ", "), idle.size() == 1 ? "changes" : "change", kOffload,
                    values.text(kOffload + "device")));
  }
  for (const std::string& key : keys_of_section("aio")) {
    if (!values.given("aio." + key)) continue;
    lines.emplace_back("aio changes nothing: no states are on NVMe");
    break;
  }
  return lines;
}

std::string tier_share_line(const TrainConfig& config, const MemoryUse& planned,
                            std::string_view transfers) {
  const std::int64_t file = at(planned.file, MemoryClass::optimizer);
  if (file == 0) {
    return fmt::format("no optimizer states are in files: no unit fits into {}ratio, {:.4g}",
                       kOffload, config.engine.tiers.optimizer_ratio);
  }
  const std::int64_t all = file + at(planned.ledger, MemoryClass::optimizer);
  const std::string part =
      config.engine.tiers.optimizer_ratio < 1
          ? fmt::format("{:.0f} % of a rank's ",
                        100 * static_cast<double>(file) / static_cast<double>(all))
          : "";
  return fmt::format("{}optimizer states are in {} through {}", part,
                     config.engine.tiers.file.folder, transfers);
}

}  // namespace zero
