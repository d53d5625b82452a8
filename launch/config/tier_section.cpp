// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "device/device.h"
#include "launch/config/answers.h"
#include "launch/config/train_config.h"
#include "tiers/tier_file.h"

namespace zero {
namespace {

const std::string kZeroPrefix = "zero_optimization.";
const std::string kOffloadOptimizer = kZeroPrefix + "offload_optimizer.";
const std::string kOffloadParam = kZeroPrefix + "offload_param.";
const std::string kNvmePath = "nvme_path";
const std::string kAuto = "auto";
const std::string kAioThreads = "aio.intra_op_parallelism";
const std::string kAioOldThreads = "aio.thread_count";

/// What a section asks for, and by which key.
struct AskedTier {
  std::string device;
  std::string key;
  std::string section;
};

/// `section`.device; DeepSpeed's older key `older` is the same as "cpu".
AskedTier asked_device(Configuration& values, const std::string& section, const char* older,
                       Refusals& refusals) {
  const std::string key = section + "device";
  const std::string old = kZeroPrefix + older;
  if (!values.boolean(old)) return {values.text(key), key, section};
  if (values.given(key) && values.text(key) != "cpu") {
    refusals.add(refusal_of(
        values, {{old}}, "{} is true, which is {} \"cpu\", but that is \"{}\"; leave the first out",
        old, key, values.text(key)));
    return {values.text(key), key, section};
  }
  values.resolve(key, "cpu", old);
  return {"cpu", old, section};
}

/// The folder of a rank's file, which has the states of all sections in `asked`, or may get them;
/// empty: none is given, and "auto" goes on without.
std::string tier_folder(const Configuration& values, const std::vector<AskedTier>& asked,
                        Refusals& refusals) {
  std::vector<std::string> keys;
  for (const AskedTier& each : asked) {
    const std::string key = each.section + kNvmePath;
    if (!values.text(key).empty()) keys.push_back(key);
  }
  if (keys.empty()) {
    const auto first = std::ranges::find(asked, "nvme", &AskedTier::device);
    if (first == asked.end()) return "";
    refusals.add(fmt::format("{}: {} is \"nvme\" without {}{}: give the folder, on a local disk of "
                             "each host, in which every rank has a file",
                             values.source(), first->key, first->section, kNvmePath),
                 {first->section + kNvmePath + "=FOLDER"});
    return "FOLDER";  // as answered
  }
  const std::string folder = values.text(keys.front());
  const std::string other = values.text(keys.back());
  const auto plain = [](const std::filesystem::path& path) {
    return (path / "").lexically_normal();
  };
  if (plain(folder) != plain(other)) {
    refusals.add(refusal_of(values, {{keys.back()}},
                            "{} is \"{}\" and {} \"{}\", but a rank has one file for both; give "
                            "one folder, or leave the second out",
                            keys.front(), folder, keys.back(), other));
  }
  return folder;
}

/// The key if it is given, else DeepSpeed's older `pipeline`, which meant both ways, else true.
bool tier_pipelined(Configuration& values, const char* name) {
  const std::string key = kOffloadOptimizer + name;
  const std::string both = kOffloadOptimizer + "pipeline";
  if (values.is_null(key)) {
    const bool older = !values.is_null(both);
    values.resolve(key, older ? values.boolean(both) : true, older ? both : "default");
  }
  return values.boolean(key);
}

/// Threads that read and write without io_uring: one key under two names.
int aio_threads(Configuration& values, Refusals& refusals) {
  if (values.is_null(kAioThreads)) {
    if (values.is_null(kAioOldThreads)) return files::QueueOptions{}.threads;
    values.resolve(kAioThreads, values.integer(kAioOldThreads), kAioOldThreads);
  } else if (!values.is_null(kAioOldThreads) &&
             values.integer(kAioThreads) != values.integer(kAioOldThreads)) {
    refusals.add(refusal_of(
        values, {{kAioOldThreads}}, "{} is {} and {}, its older name, {}; leave the second out",
        kAioThreads, values.integer(kAioThreads), kAioOldThreads, values.integer(kAioOldThreads)));
  }
  return static_cast<int>(values.integer(kAioThreads));
}

TierFileOptions make_file_options(Configuration& values, std::string folder, Refusals& refusals) {
  const std::string block = "aio.block_size";
  TierFileOptions file{.folder = std::move(folder),
                       .block_bytes = values.integer(block),
                       .queue = {.depth = static_cast<int>(values.integer("aio.queue_depth")),
                                 .threads = aio_threads(values, refusals),
                                 .one_by_one = values.boolean("aio.single_submit")},
                       .overlap_events = values.boolean("aio.overlap_events")};
  if (file.block_bytes % TierFile::kBlock != 0) {
    const std::int64_t whole = round_up(file.block_bytes, TierFile::kBlock);
    refusals.add(refusal_of(
        values, {{block, whole}},
        "{} is {}, expected a multiple of {}, in which disks are read and written; give {}", block,
        file.block_bytes, TierFile::kBlock, whole));
    file.block_bytes = whole;
  }
  return file;
}

}  // namespace

TierOptions make_tiers(Configuration& values, DeviceKind device, Refusals& refusals) {
  const AskedTier optimizer = asked_device(values, kOffloadOptimizer, "cpu_offload", refusals);
  const AskedTier parameters = asked_device(values, kOffloadParam, "cpu_offload_param", refusals);
  const bool cpu = device == DeviceKind::cpu;
  TierOptions tiers;
  tiers.windows.pipeline_read = tier_pipelined(values, "pipeline_read");
  tiers.windows.pipeline_write = tier_pipelined(values, "pipeline_write");
  tiers.optimizer_ratio = values.number(kOffloadOptimizer + "ratio");
  tiers.windows.buffers = static_cast<int>(values.integer(kOffloadOptimizer + "buffer_count"));
  if (!values.is_null(kOffloadOptimizer + "buffer_size")) {
    tiers.windows.buffer_elements = values.integer(kOffloadOptimizer + "buffer_size");
  }
  tiers.fetch_buffers = static_cast<int>(values.integer(kOffloadParam + "buffer_count"));
  tiers.parameters_in_memory = values.integer(kOffloadParam + "max_in_cpu");
  std::vector<AskedTier> in_file;
  const auto tier_of = [&](const AskedTier& asked) {
    const bool nvme = asked.device == "nvme";
    if (nvme || asked.device == kAuto) in_file.push_back(asked);
    if (nvme) return Tier::file;
    return !cpu && asked.device == "cpu" ? Tier::host : Tier::device;
  };
  tiers.optimizer = tier_of(optimizer);
  // Below stage 3 a rank has no shards of parameters.
  if (values.integer(kZeroPrefix + "stage") == 3) tiers.parameters = tier_of(parameters);
  tiers.file = make_file_options(values, tier_folder(values, in_file, refusals), refusals);
  return tiers;
}

bool tiers_are_auto(const Configuration& values) {
  return values.text(kOffloadOptimizer + "device") == kAuto ||
         values.text(kOffloadParam + "device") == kAuto;
}

std::string tier_folder_key(const Configuration& values) {
  for (const std::string& section : {kOffloadOptimizer, kOffloadParam}) {
    const std::string key = section + kNvmePath;
    const std::string device = values.text(section + "device");
    const bool by_auto = device == kAuto || chosen_by_auto(values, section + "device");
    if ((device == "nvme" || by_auto) && !values.text(key).empty()) return key;
  }
  return kOffloadOptimizer + kNvmePath;
}

std::vector<Option> tier_options() {
  using enum ValueType;
  return {
      honour(kOffloadOptimizer + "device", text, "\"none\"",
             "where optimizer states are between updates: \"none\" is in a rank's memory, \"cpu\" "
             "in pinned host memory (on a CPU the same), \"nvme\" in a file of nvme_path; "
             "both are read and written in windows (docs/tiers.md). \"auto\": what does not fit "
             "run.memory_limit, or what the machine has, goes there. No bit of a run depends on it")
          .one_of({"none", "cpu", "nvme", kAuto}),
      honour(kOffloadOptimizer + kNvmePath, text, "null",
             "with \"nvme\": a folder on a local disk of each host, in which every rank has a "
             "file without a name, gone with the rank; null: offload_param's"),
      honour(kOffloadOptimizer + "buffer_count", integer, "4",
             "windows in which what is in the file, or of a GPU in host memory, is updated: from 3 "
             "on one is updated while others are read and written")
          .from(1, 1024),
      honour(kOffloadOptimizer + "buffer_size", integer, "null",
             "elements of a window, in whole 4096, of the longest shard of a unit at most; null: "
             "1048576")
          .from(StateWindowOptions::kGrain, 9.2e18),
      honour(kOffloadOptimizer + "pipeline_read", boolean, "null",
             "states are read ahead of their update; null: as pipeline, else true (it cannot "
             "change a bit here)"),
      honour(kOffloadOptimizer + "pipeline_write", boolean, "null",
             "states are written beside the next update; null: likewise"),
      honour(kOffloadOptimizer + "pipeline", boolean, "null",
             "DeepSpeed's older name of both: for those of them that are null"),
      honour(
          kOffloadOptimizer + "ratio", number, "1.0",
          "the most of the elements, as a share, whose states are in the file, or of a GPU in host "
          "memory: whole units, each that still fits, in the order of updates; the others stay in "
          "memory")
          .from(0, 1),
      accept(
          kOffloadOptimizer + "pin_memory", boolean, "true",
          "a CPU's windows are registered with the disk's queue if locked memory allows; a GPU's "
          "states in host memory are always pinned"),
      accept(kOffloadOptimizer + "fast_init", boolean, "false", "initial values are written once"),
      accept(kOffloadOptimizer + "super_offload", boolean, "false",
             "reads, updates and writes run side by side anyway"),
      accept(kOffloadOptimizer + "cpuadam_cores_perc", number, "0.8", "run.threads decides"),
      honour(kZeroPrefix + "cpu_offload", boolean, "false",
             "DeepSpeed's older offload_optimizer.device: true is \"cpu\""),
      accept(kZeroPrefix + "cpu_offload_use_pin_memory", boolean, "false", "as pin_memory"),
      honour(
          kOffloadParam + "device", text, "\"none\"",
          "where stage 3 has shards of parameters between uses: \"none\" is in a rank's memory, "
          "\"cpu\" in pinned host memory (on a CPU the same), \"nvme\" in its file; from both they "
          "are read ahead of their gathers (docs/tiers.md). \"auto\": as offload_optimizer's, "
          "behind these. No bit of a run depends on it")
          .one_of({"none", "cpu", "nvme", kAuto}),
      honour(kZeroPrefix + "cpu_offload_param", boolean, "false",
             "DeepSpeed's older offload_param.device: true is \"cpu\""),
      honour(kOffloadParam + kNvmePath, text, "null",
             "with \"nvme\": as offload_optimizer's, in whose file the shards are too; null: the "
             "same folder"),
      honour(kOffloadParam + "buffer_count", integer, "2",
             "shares of units in memory of the device on their way to a gather, each with room for "
             "the longest; 1: none is read ahead")
          .from(1, 1024),
      honour(kOffloadParam + "max_in_cpu", integer, "0",
             "elements of a rank's shards that stay in memory all the same: of whole units, each "
             "that still fits, in the order of updates (DeepSpeed's default is 1e9)")
          .from(0, 9.2e18),
      accept(kOffloadParam + "buffer_size", integer, "100000000",
             "a buffer has room for a rank's longest share of a unit"),
      accept(kOffloadParam + "pin_memory", boolean, "true", "as offload_optimizer's"),
      honour("aio.block_size", integer, "1048576",
             "bytes of one read or write of a rank's file, a multiple of 4096")
          .from(TierFile::kBlock, 1 << 30),
      honour("aio.queue_depth", integer, "8", "reads and writes of a rank in flight").from(1, 4096),
      honour(kAioThreads, integer, "null",
             "threads of a rank that read and write where the system has no io_uring; null: 4")
          .from(1, 1024),
      honour(kAioOldThreads, integer, "null", "DeepSpeed's older name of intra_op_parallelism")
          .from(1, 1024),
      honour("aio.single_submit", boolean, "false",
             "each read or write is given to the system by a call of its own"),
      honour("aio.overlap_events", boolean, "true",
             "a window is read or written while another one is; false: one after the other"),
      only("aio.use_gds", boolean, "false", "files are read into host memory"),
  };
}

}  // namespace zero
