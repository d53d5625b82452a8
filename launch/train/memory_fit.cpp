// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "collectives/backends.h"
#include "launch/config/train_config.h"
#include "launch/process/quantity.h"
#include "launch/train/plan.h"
#include "model/decoder.h"

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

/// The activations of one rank for any counts. Which tensors are computed again anywhere decides
/// what the blocks share; then every further block's is a constant less.
class ActivationBytes {
 public:
  ActivationBytes(const TrainConfig& config, int rank, BackendKind backend)
      : config_(config), rank_(rank), backend_(backend), layers_(config.model.layers) {
    for (unsigned used = 0; used < everywhere_.size(); ++used) {
      if ((used >> kMiddle & 1U) != 0 && used + 1 < everywhere_.size()) continue;
      everywhere_[used] = planned(spread(used, layers_));
    }
    if (layers_ == 1) return;
    for (std::size_t t = 0; t < each_.size(); ++t) {
      if (t == kMiddle) continue;
      each_[t] = planned(spread(1U << t, 1)) - planned(spread(1U << t, 2));
    }
    const auto all = static_cast<unsigned>(everywhere_.size() - 1);
    each_[kMiddle] = planned(spread(all, 1)) - planned(spread(all, 2)) -
                     std::accumulate(each_.begin(), each_.end(), std::int64_t{0});
  }

  std::int64_t operator()(const Counts& counts) const {
    unsigned used = 0;
    std::int64_t kept = 0;
    for (std::size_t t = 0; t < counts.size(); ++t) {
      if (counts[t] == 0) continue;
      used |= 1U << t;
      kept += (layers_ - counts[t]) * each_[t];
    }
    return everywhere_[used] + kept;
  }

 private:
  static Counts spread(unsigned used, std::int64_t count) {
    Counts counts{};
    for (std::size_t t = 0; t < counts.size(); ++t) {
      if ((used >> t & 1U) != 0) counts[t] = count;
    }
    return counts;
  }

  std::int64_t planned(const Counts& counts) const {
    const auto device = plan_device(config_);
    const auto ranks = planning::communicator(rank_, config_.world, backend_, device.get());
    Mesh mesh(*ranks, config_.mesh);
    Engine engine(mesh, *device, config_.engine);
    const BatchShape shape{.batch = config_.batch.micro, .sequence = config_.data.sequence_length};
    return Decoder(engine, config_.model, shape, nullptr, config_.tensor,
                   plan_of(layers_, counts, config_.recompute.plan))
        .activation_bytes();
  }

  const TrainConfig& config_;
  int rank_;
  BackendKind backend_;
  std::int64_t layers_;
  std::array<std::int64_t, 1U << kBlockTensors.size()> everywhere_{};  // by the set of tensors
  ByTensor<std::int64_t> each_{};                                      // bytes of one block's
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
/// more blocks never take more memory.
std::optional<std::int64_t> fewest_hidden(const std::vector<RankBudget>& ranks, Counts counts,
                                          std::int64_t least, std::int64_t layers) {
  const auto enough = [&](std::int64_t count) {
    counts[kHidden] = count;
    return fits(ranks, counts);
  };
  if (enough(least)) return least;
  if (!enough(layers)) return std::nullopt;
  std::int64_t most = layers;
  while (most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    (enough(middle) ? most : least) = middle;
  }
  return most;
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
        Counts counts{qkv, attended, whole, whole};
        const auto cost = [&] {
          return std::inner_product(
              counts.begin(), counts.end(), flop.begin(), 0.0, std::plus<>(),
              [](std::int64_t n, double each) { return static_cast<double>(n) * each; });
        };
        if (cost() >= least) break;
        const auto hidden = fewest_hidden(ranks, counts, whole, layers);
        if (!hidden) continue;
        counts[kHidden] = *hidden;
        if (cost() >= least) continue;
        least = cost();
        best = counts;
      }
    }
  }
  return best;
}

std::string with_bytes(std::int64_t bytes) {
  return fmt::format("{} ({} bytes)", size_text(bytes), bytes);
}

/// Changes of the configuration that take less memory: "KEY: 1.20 GiB, which fits".
struct Remedies {
  std::vector<std::string> lines;
  bool one_fits = false;  ///< one of them alone
};

/// Calls `consider(change, changed)` with optimizer states in files, and at stage 3 with parameters
/// there too.
template <typename Consider>
void consider_files(const TrainConfig& config, const Consider& consider) {
  const std::string states = "zero_optimization.offload_optimizer.device \"nvme\"";
  const std::string shards = "zero_optimization.offload_param.device \"nvme\"";
  TrainConfig changed = config;
  TierOptions& tiers = changed.engine.tiers;
  tiers.file.folder = "nvme_path";  // any: nothing is made by a plan
  const bool before = std::exchange(tiers.optimizer, Tier::file) == Tier::file;
  if (!before) consider(states, changed);
  if (config.engine.stage < 3 || tiers.parameters == Tier::file) return;
  tiers.parameters = Tier::file;
  consider(before ? shards : states + " with " + shards, changed);
}

Remedies remedies(const TrainConfig& config, BackendKind backend, std::int64_t planned) {
  Remedies found;
  const auto consider = [&](const std::string& change, const TrainConfig& changed) {
    const std::int64_t bytes = planned_rank_bytes(changed, backend);
    if (bytes >= planned) return;
    const bool enough = bytes <= config.recompute.memory_limit;
    found.one_fits = found.one_fits || enough;
    found.lines.push_back(
        fmt::format("{}: {}{}", change, size_text(bytes), enough ? ", which fits" : ""));
  };
  const std::int64_t layers = config.model.layers;
  TrainConfig changed = config;
  changed.recompute.plan.blocks = RecomputePlan::full(layers).blocks;
  consider("activation_checkpointing.recompute \"full\"", changed);
  const auto groups = static_cast<std::int64_t>(std::lround(std::sqrt(layers)));
  changed.recompute.plan.blocks = RecomputePlan::grouped(layers, groups).blocks;
  consider(fmt::format("activation_checkpointing.number_checkpoints {}", groups), changed);
  changed = config;
  changed.recompute.plan.outputs = BlockOutputs::again;
  consider("activation_checkpointing.keep_outputs false", changed);
  changed = config;
  changed.batch.accumulation *= std::exchange(changed.batch.micro, 1);
  if (config.batch.micro > 1) {
    consider(fmt::format("train_micro_batch_size_per_gpu 1 with gradient_accumulation_steps {}",
                         changed.batch.accumulation),
             changed);
  }
  changed = config;
  changed.engine.stage = 3;
  changed.engine.reduction = ReductionPolicy::every_micro_batch;
  if (config.engine.stage < 3) consider("zero_optimization.stage 3", changed);
  changed = config;
  changed.engine.compute = DType::bf16;
  if (config.engine.compute == DType::fp32) consider("bf16.enabled", changed);
  changed = config;
  OptimizerConfig& optimizer = changed.engine.optimizer;
  optimizer.moments = MomentFormat::bf16;
  if (optimizer.kind != OptimizerConfig::Kind::sgd || optimizer.momentum > 0) {
    consider("optimizer.params.moments \"bf16\"", changed);
  }
  if (config.run.device == DeviceKind::cpu) {
    consider_files(config, consider);
  } else if (config.engine.tiers.optimizer == Tier::device) {
    changed = config;
    changed.engine.tiers.optimizer = Tier::host;
    consider("zero_optimization.offload_optimizer.device \"cpu\"", changed);
  }
  return found;
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
    const ActivationBytes activations(config, rank, backend);
    ranks.push_back({activations, limit - (use.bounded() - activations({}))});
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

void check_memory_limit(const TrainConfig& config, BackendKind backend, const RankPlans& plans) {
  const std::int64_t limit = config.recompute.memory_limit;
  const std::int64_t planned = planned_rank_bytes(plans);
  if (limit == 0 || planned <= limit) return;
  const auto [lines, one_fits] = remedies(config, backend, planned);
  fail(
      "{}: the run is planned to use {} of a rank's memory{}; run.memory_limit is {}: short by {}. "
      "{}",
      config.values.source(), with_bytes(planned),
      config.recompute.automatic ? " with every block computed again in backward" : "",
      with_bytes(limit), with_bytes(planned - limit),
      lines.empty()
          ? "Use more ranks, a smaller model or shorter sequences"
          : fmt::format("What would help, as planned{}: {}",
                        one_fits ? "" : " (none is enough alone)", fmt::join(lines, "; ")));
}

std::vector<std::string> recompute_lines(const TrainConfig& config) {
  std::vector<std::string> lines;
  const RecomputePlan& plan = config.recompute.plan;
  if (plan.any() || config.recompute.automatic) {
    lines.push_back(fmt::format("backward computes again: {}", plan.text()));
  }
  if (plan.on(*plan_device(config)).outputs == BlockOutputs::kept) {
    lines.push_back("backward reads the outputs of norms and GELU that were kept");
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
