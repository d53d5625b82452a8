// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace zero {

class Batches;
class Device;
class Engine;
class Mesh;
struct DataOrder;
struct StepReport;
struct TrainConfig;

/// What a step that was not finite has worked on; all must live during the call.
struct NonfiniteStep {
  const TrainConfig& config;
  const Batches& batches;
  const DataOrder& order;  ///< of the run's data
  Mesh& mesh;
  Device& device;
  Engine& engine;
  const StepReport& report;
  std::span<const double> losses;  ///< of this rank's micro-batches
  double loss_scale = 1;
};

/// Folders that a run's folder may have; later steps are told of, and not saved.
inline constexpr int kMostNonfiniteSteps = 8;

/// Saves to DIR/nonfinite_step_N what is needed to look at the step and to repeat it: report.json,
/// with the step's figures, each rank's host and losses, the values around the first NaN or
/// infinity of the tensor that the report names, where every row of every micro-batch stands in the
/// training data, and the configuration; tokens.bin, the step's rows in the order in which ranks
/// read them, as a token file. DIR is run.checkpoint.folder, else the folder of run.log. A folder
/// that is there stays as it is. The first rank writes. Returns a line for users: where it is
/// saved, or why it is not; a failure to save does not throw. Collective, before the next step.
std::string save_nonfinite_step(const NonfiniteStep& step);

}  // namespace zero
