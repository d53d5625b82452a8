// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "tests/engine/toy_run.h"

namespace zero::testing {

/// A training run of the toy model, with checkpoints in `folder`.
struct SavedRun {
  toy::Job job{};
  CheckpointOptions checkpoints{};
  std::vector<int> save_after{};  ///< steps, from 1
  std::string resume = "never";
  int last = 3;  ///< the step after which the run ends
  /// The disk of one rank; null: that of the options.
  std::function<files::FileSystem*(int rank)> disk_of{};
  float scale = 1;  ///< the initial value of the toy's last scale
};

struct RunResult {
  std::uint64_t hash = 0;
  std::int64_t resumed_at = -1;  ///< -1: a fresh start
  std::vector<std::string> passed_over;
  std::vector<SaveReport> reports;       ///< of rank 0
  std::map<std::int64_t, double> norms;  ///< by step
};

/// Trains up to step `last`; all ranks must find the same, and give the same reports but for times
/// (throws zero::Error otherwise).
RunResult run(const SavedRun& with);

/// A run of `world` ranks whose optimizer steps take 8 micro-batches at any world.
SavedRun run_of(int world, int stage, const std::string& folder, DType compute = DType::fp32);

/// The same of a model whose states are 22 MB: 21 blocks, most of them of several ranks.
SavedRun large_run_of(int world, int stage, const std::string& folder, DType compute = DType::fp32);

/// The content of every file below `folder`, by its name there.
std::map<std::string, std::string> contents(const std::string& folder);

/// Descriptors that this process has open for files below `folder`.
int open_files_below(const std::string& folder);

}  // namespace zero::testing
