// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "engine/tier_options.h"
#include "tests/checkpoint/memory_files.h"
#include "tiers/tier_file.h"

namespace zero::testing {

/// Optimizer states in a file, with windows as small as they may be: a unit of a few thousand
/// elements has several, so that the ring turns.
inline TierOptions small_windows(const std::string& folder, int buffers = 3) {
  TierOptions tiers;
  tiers.optimizer = Tier::file;
  tiers.windows.buffers = buffers;
  tiers.windows.buffer_elements = StateWindowOptions::kGrain;
  tiers.file.folder = folder;
  tiers.file.block_bytes = TierFile::kBlock;
  return tiers;
}

/// The same in host memory beside a device's own.
inline TierOptions host_windows(int buffers = 3) {
  TierOptions tiers = small_windows({}, buffers);
  tiers.optimizer = Tier::host;
  return tiers;
}

/// The same options with shards of parameters in the file too, or, with Tier::device, those alone.
inline TierOptions with_shards(TierOptions tiers, Tier optimizer = Tier::file, int buffers = 2) {
  tiers.optimizer = optimizer;
  tiers.parameters = Tier::file;
  tiers.fetch_buffers = buffers;
  return tiers;
}

/// The same options with shards of parameters in host memory beside a device's own.
inline TierOptions with_host_shards(TierOptions tiers, Tier optimizer = Tier::host,
                                    int buffers = 2) {
  tiers.optimizer = optimizer;
  tiers.parameters = Tier::host;
  tiers.fetch_buffers = buffers;
  return tiers;
}

inline constexpr const char* kLateFolder = "/states";

/// A disk in memory with the folder kLateFolder, for any rank. Transfers happen when they are
/// waited for, and no sooner.
inline std::shared_ptr<files::FileSystem> late_disk(int /*rank*/) {
  auto disk = std::make_shared<MemoryFiles>();
  disk->make_folder(kLateFolder);
  disk->transfer_late();
  return disk;
}
/// The same, so slow that compute has to wait for it.
inline std::shared_ptr<files::FileSystem> slow_disk(int /*rank*/) {
  auto disk = std::make_shared<MemoryFiles>();
  disk->make_folder(kLateFolder);
  disk->transfer_late(std::chrono::milliseconds(2));
  return disk;
}

}  // namespace zero::testing
