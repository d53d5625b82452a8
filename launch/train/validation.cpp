// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A run's loss over the validation sequences.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "base/seconds_since.h"
#include "collectives/host_values.h"
#include "device/exact_sum.h"
#include "engine/engine.h"
#include "launch/data/batches.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"
#include "launch/train/trainer.h"
#include "model/model.h"

namespace zero {
namespace {

double loss_of(TrainingState& training_state, const Batches& batches,
               const std::vector<std::int64_t>& rows) {
  batches.validation(rows, training_state.inputs(), training_state.targets());
  training_state.model().evaluate(training_state.inputs(), training_state.targets(),
                                  training_state.loss());
  training_state.engine().device().compute().synchronize();
  return training_state.loss().as<double>()[0];
}

/// The mean loss in nats per token over the validation sequences: the same bits for every stage and
/// world with the same micro-batch. Collective; between optimizer steps. Each rank calls
/// `goes_on(batch, batches)` after each batch: the loss is nothing once it is false on any rank.
std::optional<double> validation_loss(
    TrainingState& training_state, const Batches& batches,
    const std::function<bool(std::int64_t, std::int64_t)>& goes_on) {
  Engine& engine = training_state.engine();
  Communicator& communicator = engine.mesh().data();
  const std::int64_t rows = training_state.model().shape().batch;
  const std::int64_t sequences = batches.validation_sequences();
  const std::int64_t whole = sequences / rows;
  const std::int64_t left = sequences % rows;
  // The last, partial batch is filled with copies of its first row. A batch of nothing but copies
  // gives the loss to subtract: up to two extra batches, on the ranks whose turn it is.
  const std::int64_t count = whole + (left > 0 ? 2 : 0);
  const std::int64_t turns = div_ceil(count, communicator.size());
  ExactSum sum;
  engine.begin_evaluation();
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::int64_t batch = turn * communicator.size() + communicator.rank();
    std::vector<std::int64_t> taken(static_cast<std::size_t>(rows),
                                    std::min(batch, whole) * rows % sequences);
    const std::int64_t real = batch < whole ? rows : batch == whole ? left : 1;
    std::iota(taken.begin(), taken.begin() + std::max<std::int64_t>(real, 1), taken[0]);
    const double loss =
        loss_of(training_state, batches, taken);  // ranks without a batch must take part too
    if (batch <= whole && batch < count) sum.add(loss);
    if (batch == whole + 1 && batch < count)
      sum.add(-loss * static_cast<double>(rows - left) / static_cast<double>(rows));
    std::int64_t ends = goes_on(turn + 1, turns) ? 0 : 1;
    host_all_reduce(engine.mesh().world(), engine.device(), View::of(std::span(&ends, 1)),
                    ReduceOp::sum, {"whether the validation goes on", {}});
    if (ends > 0) {
      engine.end_evaluation();
      return std::nullopt;
    }
  }
  engine.end_evaluation();
  host_all_reduce(communicator, engine.device(), View::of(std::span<std::int64_t>(sum.limbs())),
                  ReduceOp::sum, {"validation loss", {}});
  return sum.value() / static_cast<double>(sequences * training_state.model().shape().sequence);
}

}  // namespace

std::optional<double> Trainer::validate() {
  if (batches_.validation_sequences() == 0) return std::nullopt;
  if (validated_at_ == step_) return validation_;
  const auto start = std::chrono::steady_clock::now();
  begin_phase(step_, "validation");
  const std::optional<double> loss =
      validation_loss(training_state_, batches_, [&](std::int64_t turn, std::int64_t turns) {
        const double seconds = seconds_since(start);
        const double left = seconds / static_cast<double>(turn) * static_cast<double>(turns - turn);
        const std::string text = fmt::format("step {}: validation, batch {} of {}  {} left", step_,
                                             turn, turns, duration_text(left));
        console_.progress(text, start);
        return !checkpoints_.ending();
      });
  validation_seconds_ = seconds_since(start);
  communication_time_.take();  // these collectives are no step's
  if (!loss) {
    console_.line(fmt::format("step {}: the validation is broken off", step_));
    return std::nullopt;
  }
  validation_ = loss;
  validated_at_ = step_;
  console_.line(fmt::format("step {}: validation loss {:.4f} nats per token over {} sequences",
                            step_, *validation_, batches_.validation_sequences()));
  return validation_;
}

}  // namespace zero
