// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/nccl/options.h"
#include "engine/waits.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/model/training_harness.h"

namespace zero::testing {

/// Training on the emulated GPU of which everything is recorded.
struct AuditedRun {
  enum class Between { nothing, evaluation };
  enum class End { training, state };  ///< state: it is then read, written and hashed

  DecoderShape model = tiny_gpt2();
  int ranks = 2;
  MeshShape mesh{};
  TensorOptions tensor{};
  RecomputePlan recompute{};
  EngineOptions engine{};
  cuda::emulated::Settings::Order order = cuda::emulated::Settings::Order::lazy;
  /// Each rank has a GPU of its own, and they talk through NCCL's fake; else they share one.
  std::optional<nccl::Options> nccl{};
  std::optional<WaitSite> skipped{};   ///< a wait left out
  bool copies_parameters = false;      ///< to pinned memory, under every step
  Between between = Between::nothing;  ///< steps
  End end = End::training;
  int accumulation = 2;  ///< micro-batches of a step
  int steps = 2;
};

/// Parameters of any size are sharded and gathered.
EngineOptions audited_options(int stage);

/// Trains, and tells what streams and host threads did.
cuda::emulated::WorkGraph graph_of(const AuditedRun& run);

/// What nothing orders, in words.
std::vector<std::string> races(const cuda::emulated::WorkGraph& graph);

/// "rank 1", of "rank 1's stream 2 (priority 0)".
std::string owner_of(const std::string& chain);
/// What each chain did, without what differs from run to run: addresses, and numbers of streams.
std::vector<std::string> summary_of(const cuda::emulated::WorkGraph& graph);

}  // namespace zero::testing
