// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/evaluation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/printable.h"
#include "collectives/host_values.h"
#include "device/exact_sum.h"
#include "launch/data/tokenizer.h"

namespace zero {
namespace {

constexpr double kTemperature = 0.8;
constexpr std::size_t kLikeliest = 40;
constexpr std::int64_t kPrompt = 64;

double loss_of(Workbench& workbench, const Batches& batches,
               const std::vector<std::int64_t>& rows) {
  batches.validation(rows, workbench.inputs(), workbench.targets());
  workbench.model().evaluate(workbench.inputs(), workbench.targets(), workbench.loss());
  workbench.engine().device().compute().synchronize();
  return workbench.loss().as<double>()[0];
}

/// Picks one of the likeliest tokens by its probability; `draw` is in [0, 1).
std::int32_t pick(std::span<const float> logits, double draw) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t kept = std::min(kLikeliest, order.size());
  const auto value = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return value(a) != value(b) ? value(a) > value(b) : a < b;
                    });
  std::vector<double> weights;
  for (std::size_t i = 0; i < kept; ++i) {
    weights.push_back(
        std::exp(static_cast<double>(value(order[i]) - value(order[0])) / kTemperature));
  }
  double left = draw * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[0];
}

}  // namespace

double validation_loss(Workbench& workbench, const Batches& batches) {
  Engine& engine = workbench.engine();
  Communicator& communicator = engine.mesh().data();
  const std::int64_t rows = workbench.model().shape().batch;
  const std::int64_t sequences = batches.validation_sequences();
  const std::int64_t whole = sequences / rows;
  const std::int64_t left = sequences % rows;
  // The last, partial batch is filled with copies of its first row. A batch of nothing but copies
  // gives the loss to subtract: up to two extra batches, on the ranks whose turn it is.
  const std::int64_t count = whole + (left > 0 ? 2 : 0);
  const std::int64_t turns = (count + communicator.size() - 1) / communicator.size();
  ExactSum sum;
  engine.begin_evaluation();
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::int64_t batch = turn * communicator.size() + communicator.rank();
    std::vector<std::int64_t> taken(static_cast<std::size_t>(rows),
                                    std::min(batch, whole) * rows % sequences);
    const std::int64_t real = batch < whole ? rows : batch == whole ? left : 1;
    std::iota(taken.begin(), taken.begin() + std::max<std::int64_t>(real, 1), taken[0]);
    const double loss =
        loss_of(workbench, batches, taken);  // ranks without a batch must take part too
    if (batch <= whole && batch < count) sum.add(loss);
    if (batch == whole + 1 && batch < count)
      sum.add(-loss * static_cast<double>(rows - left) / static_cast<double>(rows));
  }
  engine.end_evaluation();
  host_all_reduce(communicator, engine.device(), View::of(std::span<std::int64_t>(sum.limbs())),
                  ReduceOp::sum, {"validation loss", {}});
  return sum.value() / static_cast<double>(sequences * workbench.model().shape().sequence);
}

SampledText sample_text(Workbench& workbench, const Batches& batches, std::int64_t count,
                        std::uint64_t seed) {
  const BatchShape shape = workbench.model().shape();
  std::vector<std::int32_t> text = batches.prompt(std::min(kPrompt, (shape.sequence + 1) / 2));
  SampledText sample{.prompt = {text.begin(), text.end()}, .tokens = {}};
  const std::span<std::int32_t> inputs = workbench.inputs().as<std::int32_t>();
  std::mt19937_64 random(seed);
  workbench.engine().begin_evaluation();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto length = static_cast<std::int64_t>(text.size());
    // A full window moves on by half, so that most steps only append.
    if (length > shape.sequence)
      text.erase(text.begin(), text.end() - std::max<std::int64_t>(1, shape.sequence / 2));
    std::fill(inputs.begin(), inputs.end(), 0);
    std::copy(text.begin(), text.end(), inputs.begin());
    workbench.model().next_logits(workbench.inputs(), static_cast<std::int64_t>(text.size()) - 1,
                                  workbench.logits());
    workbench.engine().device().compute().synchronize();
    const double draw = static_cast<double>(random() >> 11U) * 0x1.0p-53;
    text.push_back(pick(workbench.logits().as<const float>(), draw));
    sample.tokens.push_back(static_cast<std::uint32_t>(text.back()));
  }
  workbench.engine().end_evaluation();
  return sample;
}

std::string show(const SampledText& sample, const std::string& tokenizer) {
  if (tokenizer.empty())
    return fmt::format("{} | {}", fmt::join(sample.prompt, " "), fmt::join(sample.tokens, " "));
  const auto words = make_tokenizer(tokenizer);
  std::vector<std::uint32_t> all = sample.prompt;
  all.insert(all.end(), sample.tokens.begin(), sample.tokens.end());
  return printable_text(words->decode(all));
}

}  // namespace zero
