// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "engine/engine.h"
#include "engine/waits.h"
#include "tests/engine/toy_model.h"
#include "tests/support/test_device.h"

namespace zero::toy {

/// One training run of the toy model with ranks as threads.
struct Job {
  int world = 1;
  MeshShape mesh{};  ///< of `world` ranks
  EngineOptions engine{};
  int accumulation_steps = 1;
  int steps = 3;
  Shape shape{};
  std::optional<testing::StreamOrder> order{};  ///< unset: the CPU device
  std::optional<WaitSite> skipped{};            ///< a wait left out
  /// The disk of a rank's file of states (EngineOptions::tiers); unset: that of the options.
  std::function<std::shared_ptr<files::FileSystem>(int rank)> states_disk{};
  /// Of each step, from 0; unset: 1. A step whose scaled gradients overflow is skipped.
  std::function<double(int step)> loss_scale{};
  int read_rounds = 0;  ///< above 0: a reader copies the states during each step, in as many rounds
};

struct Result {
  std::uint64_t hash = 0;
  std::vector<double> losses;
  std::vector<double> norms;          ///< of the steps that were not skipped
  std::vector<std::int64_t> skipped;  ///< steps, from 1
  std::uint64_t read = 0;             ///< hash of what readers copied, on all ranks
  friend bool operator==(const Result&, const Result&) = default;
  /// Equal weights, moments, norms and copies, whatever was said of losses.
  bool same_training(const Result& other) const {
    return hash == other.hash && norms == other.norms && read == other.read;
  }
};

std::ostream& operator<<(std::ostream& out, const Result& result);

/// Options of the toy: AdamW with a weight decay, clipping that bites, everything gathered
/// (threshold 0), checked.
EngineOptions options(int stage, DType compute);

/// Trains; every rank must find the same (throws zero::Error otherwise). Step s takes micro-batches
/// numbered as in the design.
Result train(const Job& run);

/// What each rank of a run does after sealing, for tests that need more than train().
void with_engine(const Job& run, const std::function<void(Engine&, Model&, Communicator&)>& body);

/// One optimizer step of the toy inside with_engine. With test streams no losses are given (the
/// report's loss is 0), so that nothing but the engine's own waits orders the streams.
StepReport step(Engine& engine, Model& model, Communicator& communicator, const Job& run,
                int index);

}  // namespace zero::toy
