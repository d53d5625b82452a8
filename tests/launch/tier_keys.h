// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "files/file_system_type.h"
#include "launch/train/tier_lines.h"
#include "tests/launch/cut_run.h"

namespace zero::testing {

inline const std::string kOffloadOptimizer = "zero_optimization.offload_optimizer.";
inline const std::string kOffloadParam = "zero_optimization.offload_param.";

/// Overrides of a run with its optimizer states in files of `folder`.
inline Overrides nvme_keys(const std::string& folder) {
  return {"run.device=cpu", "run.threads=1", "zero_optimization.offload_optimizer.device=nvme",
          "zero_optimization.offload_optimizer.nvme_path=" + folder};
}

/// With its shards of parameters there, of which a small model has some if none are small.
inline Overrides shard_keys(const std::string& folder) {
  return {"run.device=cpu",
          "run.threads=1",
          "zero_optimization.stage=3",
          "zero_optimization.stage3_param_persistence_threshold=100",
          "zero_optimization.offload_param.device=nvme",
          "zero_optimization.offload_param.nvme_path=" + folder};
}

inline Overrides limited_to(std::int64_t bytes) {
  return {fmt::format("run.memory_limit={}", bytes)};
}

/// Windows that are small beside the states of a small model.
inline Overrides small_windows() {
  return {"zero_optimization.offload_optimizer.buffer_size=4096", "aio.block_size=4096"};
}

inline Overrides all_keys(const std::string& folder) {
  return plus(nvme_keys(folder), shard_keys(folder));
}

inline constexpr const char* kMemoryFolder = "/dev/shm";

inline bool has_memory_folder() {
  std::error_code error;
  return std::filesystem::is_directory(kMemoryFolder, error) &&
         files::medium_of_type(files::type_of_path(kMemoryFolder)) == files::Medium::memory;
}

}  // namespace zero::testing
