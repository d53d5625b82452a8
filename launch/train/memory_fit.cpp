// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "architecture/decoder_shape.h"
#include "base/checked_math.h"
#include "base/sign_of_life.h"
#include "collectives/backends.h"
#include "launch/config/train_config.h"
#include "launch/train/plan.h"
#include "model/decoder.h"
#include "model/recompute.h"

namespace zero {
namespace {

/// One value for each BlockTensor.
template <typename T>
using ByTensor = std::array<T, kBlockTensors.size()>;

/// Of one token in one block.
using TensorFlop = ByTensor<double>;

/// With attention over as many positions (DecoderShape::attended_positions).
TensorFlop tensor_flop(const DecoderShape& d, double positions) {
  const auto width = static_cast<double>(d.width);
  const auto attended = static_cast<double>(d.attended_width());
  // The norm of the MLP's branch needs that branch.
  const std::int64_t hidden = d.hidden_width() + (d.branch_norms ? d.intermediate : 0);
  return {2 * width * static_cast<double>(d.qkv_width()), 2 * positions * attended,
          2 * attended * width, 2 * width * static_cast<double>(hidden)};
}

/// The mean over blocks, by which it is chosen how many to compute again.
TensorFlop mean_tensor_flop(const DecoderShape& d, std::int64_t sequence) {
  double positions = 0;
  for (std::int64_t i = 0; i < d.layers; ++i) positions += d.attended_positions(i, sequence);
  return tensor_flop(d, positions / static_cast<double>(d.layers));
}

/// The number of blocks, from block 0 on, that compute each tensor again. Those of middle compute
/// all.
using Counts = ByTensor<std::int64_t>;
constexpr auto kMiddle = static_cast<std::size_t>(BlockTensor::middle);
constexpr auto kHidden = static_cast<std::size_t>(BlockTensor::hidden);

RecomputePlan plan_of(std::int64_t layers, const Counts& counts, const RecomputePlan& like) {
  RecomputePlan plan = like;
  plan.blocks.assign(static_cast<std::size_t>(layers), {});
  for (const BlockTensor tensor : kBlockTensors) {
    const std::int64_t count = counts[static_cast<std::size_t>(tensor)];
    for (std::int64_t i = 0; i < count; ++i) plan.blocks[static_cast<std::size_t>(i)].set(tensor);
  }
  return plan;
}

/// The activations of one rank for any counts.
class ActivationBytes {
 public:
  ActivationBytes(const TrainConfig& config, int rank, BackendKind backend)
      : planned_(std::make_unique<Planned>(config, rank, backend)),
        layers_(config.model.layers),
        like_(config.recompute.plan) {
    const DecoderMemory kept = memory({});
    scratch_ = planned_->model.activation_bytes() - kept.bytes();
    least_ = scratch_ + kept.places().lower_bound();
    const auto at_head = [](const DecoderMemory& memory) {
      return memory.places().most_alive(memory.head_step(), memory.head_step());
    };
    for (std::size_t t = 0; t < each_.size(); ++t) {
      if (t == kMiddle) continue;
      Counts one{};
      one[t] = 1;
      each_[t] = at_head(kept) - at_head(memory(one));
    }
    each_[kMiddle] = at_head(kept) - at_head(memory({1, 1, 1, 1})) -
                     std::accumulate(each_.begin(), each_.end(), std::int64_t{0});
    if (!like_.inputs_on_host) return;
    // An input in host memory takes nothing at the head; those in windows do.
    const Counts all{layers_, layers_, layers_, layers_};
    RecomputePlan on_device = plan_of(layers_, all, like_);
    on_device.inputs_on_host = false;
    each_[kMiddle] +=
        div_ceil(at_head(planned_->model.memory_with(on_device)) - at_head(memory(all)),
                 std::max<std::int64_t>(1, layers_ - InputWindows::kMost));
  }

  /// As planned.
  std::int64_t operator()(const Counts& counts) const { return scratch_ + memory(counts).bytes(); }
  /// No more than that, found faster: a tensor less to keep is at most its bytes less.
  std::int64_t least(const Counts& counts) const {
    return least_ -
           std::inner_product(counts.begin(), counts.end(), each_.begin(), std::int64_t{0});
  }
  /// Of one block.
  std::int64_t of(std::size_t tensor) const { return each_[tensor]; }

 private:
  /// The run's model on a device without memory.
  struct Planned {
    Planned(const TrainConfig& config, int rank, BackendKind backend)
        : device(plan_device(config)),
          ranks(planning::communicator(rank, config.world, backend, device.get())),
          mesh(*ranks, config.mesh),
          engine(mesh, *device, config.engine),
          model(engine, config.model,
                {.batch = config.batch.micro, .sequence = config.data.sequence_length}, nullptr,
                config.tensor, config.recompute.plan) {}
    std::unique_ptr<Device> device;
    std::unique_ptr<Communicator> ranks;
    Mesh mesh;
    Engine engine;
    Decoder model;
  };

  DecoderMemory memory(const Counts& counts) const {
    return planned_->model.memory_with(plan_of(layers_, counts, like_));
  }

  std::unique_ptr<Planned> planned_;
  std::int64_t layers_;
  RecomputePlan like_;
  std::int64_t scratch_ = 0;
  std::int64_t least_ = 0;         // if all is kept
  ByTensor<std::int64_t> each_{};  // bytes that a block keeps
};

/// A rank's activations, and the bytes that they may have.
struct RankBudget {
  ActivationBytes activations;
  std::int64_t bytes = 0;
};

bool fits(const std::vector<RankBudget>& ranks, const Counts& counts) {
  return std::ranges::all_of(
      ranks, [&](const RankBudget& rank) { return rank.activations(counts) <= rank.bytes; });
}

/// The fewest blocks that have to compute hidden again, from `least` on, with the other counts;
/// none if `worth(count)` is false for that many.
template <typename Worth>
std::optional<std::int64_t> fewest_hidden(const std::vector<RankBudget>& ranks, Counts counts,
                                          std::int64_t least, std::int64_t layers,
                                          const Worth& worth) {
  counts[kHidden] = least;
  std::int64_t count = least;
  for (const RankBudget& rank : ranks) {
    const std::int64_t over = rank.activations.least(counts) - rank.bytes;
    if (over <= 0) continue;
    count = std::max(count, least + div_ceil(over, rank.activations.of(kHidden)));
  }
  for (; count <= layers && worth(count); ++count) {
    counts[kHidden] = count;
    if (fits(ranks, counts)) return count;
  }
  return std::nullopt;
}

/// Most counts of a tensor that are tried: all those of a model of that many blocks, multiples of a
/// stride and all blocks of a deeper one. The search takes time by the third power.
constexpr std::int64_t kMostTried = 96;

/// The counts of least FLOP that fit, of those tried; the first such in order of blocks computed
/// whole.
std::optional<Counts> cheapest(const std::vector<RankBudget>& ranks, const TensorFlop& flop,
                               std::int64_t layers) {
  if (!fits(ranks, {layers, layers, layers, layers})) return std::nullopt;
  const std::int64_t stride = div_ceil(layers, kMostTried);
  const auto next = [&](std::int64_t n) {
    return n == layers ? layers + 1 : std::min(n + stride, layers);
  };
  std::optional<Counts> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t whole = 0; whole <= layers; whole = next(whole)) {
    for (std::int64_t qkv = whole; qkv <= layers; qkv = next(qkv)) {
      for (std::int64_t attended = whole; attended <= layers; attended = next(attended)) {
        give_sign_of_life();  // a deep model takes long, and no plan is made meanwhile
        Counts counts{qkv, attended, whole, whole};
        const auto cost = [&] {
          return std::inner_product(
              counts.begin(), counts.end(), flop.begin(), 0.0, std::plus<>(),
              [](std::int64_t n, double each) { return static_cast<double>(n) * each; });
        };
        if (cost() >= least) break;
        const auto cheaper = [&](std::int64_t hidden) {
          counts[kHidden] = hidden;
          return cost() < least;
        };
        const auto hidden = fewest_hidden(ranks, counts, whole, layers, cheaper);
        if (!hidden) continue;
        counts[kHidden] = *hidden;
        least = cost();
        best = counts;
      }
    }
  }
  return best;
}

}  // namespace

std::int64_t planned_rank_bytes(const RankPlans& plans) {
  std::int64_t most = 0;
  for (const auto& [rank, use] : plans) most = std::max(most, use.bounded());
  return most;
}

std::int64_t planned_rank_bytes(const TrainConfig& config, BackendKind backend) {
  return planned_rank_bytes(plan_ranks(config, backend));
}

double recomputed_flop(const DecoderShape& model, std::int64_t sequence,
                       const RecomputePlan& plan) {
  const double output = 2 * static_cast<double>(model.width * model.intermediate);
  double sum = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(plan.blocks.size()); ++i) {
    const TensorFlop flop = tensor_flop(model, model.attended_positions(i, sequence));
    for (const BlockTensor tensor : kBlockTensors) {
      if (plan.block(i).has(tensor)) sum += flop[static_cast<std::size_t>(tensor)];
    }
    if (plan.last_of_group(i) != i) sum += output;
  }
  return sum;
}

RankPlans choose_recompute(TrainConfig& config, BackendKind backend) {
  const std::int64_t limit = config.recompute.memory_limit;
  if (limit == 0) return {};
  if (!config.recompute.automatic) return plan_ranks(config, backend);
  const std::int64_t layers = config.model.layers;
  config.recompute.plan.blocks.clear();
  std::vector<RankBudget> ranks;
  for (const auto& [rank, use] : plan_ranks(config, backend)) {
    ActivationBytes activations(config, rank, backend);
    const std::int64_t rest = use.bounded() - activations({});
    ranks.push_back({std::move(activations), limit - rest});
  }
  const RecomputePlan like = config.recompute.plan;
  const TensorFlop flop = mean_tensor_flop(config.model, config.data.sequence_length);
  // A GPU's pages may take a little more than the activations' bytes: then once more with less.
  for (;;) {
    const std::optional<Counts> counts = cheapest(ranks, flop, layers);
    config.recompute.plan =
        plan_of(layers, counts.value_or(Counts{layers, layers, layers, layers}), like);
    RankPlans plans = plan_ranks(config, backend);
    const std::int64_t over = planned_rank_bytes(plans) - limit;
    if (!counts || over <= 0) return plans;
    for (RankBudget& rank : ranks) rank.bytes -= over;
  }
}

std::vector<std::string> recompute_lines(const TrainConfig& config) {
  std::vector<std::string> lines;
  const RecomputePlan& plan = config.recompute.plan;
  if (plan.any() || config.recompute.automatic) {
    lines.push_back(fmt::format("backward computes again: {}", plan.text()));
  }
  const RecomputePlan on_device = plan.on(*plan_device(config));
  if (on_device.outputs == BlockOutputs::kept) {
    lines.push_back("backward reads the outputs of norms and GELU that were kept");
  }
  if (on_device.inputs_on_host) {
    const InputWindows windows(on_device, config.model.layers);
    lines.push_back(
        windows.count() > 0
            ? fmt::format("inputs of {} blocks are in pinned host memory between forward and "
                          "backward, those of the last {} of them in the windows of all",
                          windows.count(), windows.windows())
            : fmt::format("activation_checkpointing.cpu_checkpointing has no effect: {} or fewer "
                          "blocks keep their input alone (activation_checkpointing.recompute "
                          "\"full\")",
                          InputWindows::kMost));
  }
  if (plan.blocks.size() > 1 && plan.first_of_group(std::ssize(plan.blocks) - 1) == 0) {
    lines.push_back(
        "activation_checkpointing.number_checkpoints is 1: backward computes all blocks again and "
        "holds the activations of all at once, as without; give more groups");
  }
  if (plan.partition_inputs && (config.mesh.tensor == 1 || config.tensor.sequence_parallel)) {
    lines.push_back(fmt::format("activation_checkpointing.partition_activations has no effect: {}",
                                config.mesh.tensor == 1
                                    ? "there is one tensor rank"
                                    : "under mesh.sequence_parallel inputs are shares already"));
  } else if (plan.partition_inputs && std::ranges::none_of(plan.blocks, &BlockRecompute::whole)) {
    lines.push_back(
        "activation_checkpointing.partition_activations has no effect: no block keeps its input "
        "alone (activation_checkpointing.recompute \"full\")");
  }
  return lines;
}

}  // namespace zero
