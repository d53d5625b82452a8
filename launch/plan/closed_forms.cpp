// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/closed_forms.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "architecture/decoder_parameters.h"
#include "base/checked_math.h"
#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "collectives/nccl/plan.h"
#include "device/arena_layout.h"
#include "device/host_access.h"
#include "engine/coded_moments.h"
#include "engine/gradients.h"
#include "engine/state_home.h"
#include "engine/step_sums.h"
#include "launch/plan/exact_plan.h"
#include "launch/plan/model_states.h"
#include "model/decoder.h"

namespace zero {
namespace {

constexpr std::int64_t kFp32 = 4;

/// Adds `times` x `other` to `use`.
void add(MemoryUse& use, const MemoryUse& other, int times = 1) {
  for (std::size_t c = 0; c < kMemoryClasses; ++c) {
    use.ledger[c] += times * other.ledger[c];
    use.device.arenas[c] += times * other.device.arenas[c];
    use.file[c] += times * other.file[c];
  }
  use.device.adopted += times * other.device.adopted;
  use.host += times * other.host;
}

/// What a rank's device, and the engine beside its units, take of any candidate.
MemoryUse common_use(const TrainConfig& base) {
  const auto device = planned_device(base);
  const HostAccess host_access(*device);
  plan_host_values(*device);
  return MemoryUse::of(*device);
}

/// The tensor ranks of unlike shares, the one with most heads first: that is rank 0, unless
/// key/value heads that ranks hold together have unequal numbers of holders.
std::vector<int> unlike_ranks(const DecoderShape& model, int tensor) {
  using Shares = std::vector<std::int64_t>;
  std::map<Shares, int, std::greater<>> first_of;  // by query heads, then elements
  for (int rank = 0; rank < tensor; ++rank) {
    const auto split = DecoderSplit::of(model, rank, tensor, DecoderSplit::Tables::cut);
    Shares shares{HeadSplit::of(model.heads, model.kv_heads, rank, tensor).queries.count};
    for (const auto& parameter : DecoderParameters(split).all) {
      shares.push_back(parameter.spec().count());
    }
    first_of.emplace(std::move(shares), rank);
  }
  std::vector<int> ranks;
  for (const auto& [shares, rank] : first_of) ranks.push_back(rank);
  return ranks;
}

}  // namespace

/// Adds up buffers as a planning device does: those of Device::allocate lie in a class's block,
/// those of Communicator::allocate in NCCL's memory if they are large, in whole pages.
class ClosedForms::Account {
 public:
  Account(const MemoryUse& begin, bool gpu, BackendKind backend)
      : use(begin), gpu_(gpu), nccl_(backend == BackendKind::nccl) {}

  void take(MemoryClass of, std::int64_t bytes, std::int64_t count = 1) {
    at(use.ledger, of) += bytes * count;
    if (gpu_) at(use.device.arenas, of) += round_up(bytes, ArenaLayout::kAlignment) * count;
  }
  void take_of(int ranks, MemoryClass of, std::int64_t bytes, std::int64_t count = 1) {
    if (!nccl_ || !nccl::gives_memory(ranks, bytes, DType::u8)) return take(of, bytes, count);
    at(use.ledger, of) += bytes * count;
    use.device.adopted += round_up(bytes, DeviceBytes::kPage) * count;
  }
  void take_host(MemoryClass of, std::int64_t bytes) {
    at(use.ledger, of) += bytes;
    if (gpu_) use.host += bytes;
  }
  void take_in(Tier tier, MemoryClass of, std::int64_t bytes, std::int64_t count) {
    if (tier == Tier::device) return take(of, bytes, count);
    if (tier == Tier::host) return take_host(of, bytes * count);
    at(use.file, of) += round_up(bytes, TierFile::kBlock) * count;
  }
  bool gpu() const { return gpu_; }

  MemoryUse use;

 private:
  bool gpu_;
  bool nccl_;
};

ClosedForms::ClosedForms(const TrainConfig& base, Machine machine)
    : base_(base),
      machine_(std::move(machine)),
      backend_(machine_.backend()),
      pieces_(planned_device(base)->piece_sizes()),
      common_(common_use(base)),
      flop_per_token_(base.model.flop_per_token(base.data.sequence_length)) {}

/// Asks a Decoder of the tensor rank on a planning device.
const ClosedForms::OfModel& ClosedForms::of_model(const Candidate& candidate) {
  const int tensor = candidate.mesh.tensor;
  const auto [found, made] = of_model_.try_emplace(
      {tensor, rank_, candidate.micro, candidate.compute, candidate.recompute.kind,
       candidate.recompute.count, candidate.kept_inputs});
  OfModel& model = found->second;
  if (!made) return model;
  const auto device = planned_device(base_);
  const auto ranks = planning::communicator(
      rank_, tensor, tensor == 1 ? BackendKind::local : backend_, device.get());
  Mesh mesh(*ranks, {1, 1, tensor});
  EngineOptions options = base_.engine;
  options.compute = candidate.compute;
  options.gradient.reset();
  Engine engine(mesh, *device, options);
  add(model.memory, MemoryUse::of(*device), -1);
  TensorOptions cut = base_.tensor;
  cut.sequence_parallel = candidate.sequence_parallel();
  RecomputePlan plan = candidate.recompute_plan(base_.model.layers);
  plan.outputs = base_.recompute.plan.outputs;
  Decoder decoder(engine, base_.model, {candidate.micro, base_.data.sequence_length}, nullptr, cut,
                  plan);
  decoder.allocate();
  add(model.memory, MemoryUse::of(*device));
  model.sent = static_cast<double>(decoder.tensor_traffic().total());
  model.order = decoder.order();
  if (!plan.inputs_on_host) return model;
  const DecoderMemory memory = decoder.memory_with(plan);
  model.copied = 2.0 * static_cast<double>(memory.windows().on_host() * memory.kept_input_count() *
                                           size_of(candidate.compute));
  return model;
}

/// Unit::lay_out() of the tensor rank's slices.
const ClosedForms::Kinds& ClosedForms::kinds(const Candidate& candidate) {
  const MeshShape& mesh = candidate.mesh;
  const std::int64_t alignment = std::max(kAlignment, moment_block(candidate.moments));
  const auto [found, made] = kinds_.try_emplace({mesh.tensor, rank_, mesh.shard, alignment});
  if (!made) return found->second;
  const DecoderParameters parameters(
      DecoderSplit::of(base_.model, rank_, mesh.tensor, DecoderSplit::Tables::cut));
  std::vector<int> backward_uses(parameters.units.size(), 0);
  for (const Use& use : of_model(candidate).order) {
    if (writes_gradients(use.phase)) ++backward_uses[static_cast<std::size_t>(use.unit.index)];
  }
  const std::size_t last = parameters.units.size() - 1;
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, last}) {
    std::vector<ParameterSpec> specs;
    for (std::size_t i = parameters.units[unit].begin; i < parameters.units[unit].end; ++i) {
      specs.push_back(parameters.all[i].spec());
    }
    const std::int64_t small = base_.engine.limits.persistence_threshold.value_or(kSmallParameter);
    found->second.push_back({FlatLayout(specs, mesh.shard, small, alignment),
                             unit == 1 ? base_.model.layers : 1, backward_uses[unit] > 1});
  }
  return found->second;
}

void ClosedForms::add_states(const Candidate& candidate, Account& account) {
  const int shards = candidate.mesh.shard;
  const std::int64_t e = size_of(candidate.compute);
  const bool fp32 = candidate.compute == DType::fp32;
  const Offload& offload = candidate.offload;
  const auto take_state = [&](std::int64_t bytes, std::int64_t count) {
    account.take_in(offload.optimizer, MemoryClass::optimizer, bytes, count);
  };
  const Windows& arena = windows(candidate);
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const FlatLayout& l = kind.layout;
    const auto take_of = [&](MemoryClass of, std::int64_t bytes, std::int64_t count) {
      account.take_of(shards, of, bytes, count);
    };
    const std::int64_t whole = candidate.stage < 3 ? kind.count : arena.whole[k];
    take_of(MemoryClass::parameters, e * l.padded(), whole);
    const std::int64_t away = arena.away[k];
    take_of(MemoryClass::parameters, e * l.shard(), kind.count - whole - away);
    account.take_in(offload.parameters, MemoryClass::parameters, e * l.shard(), away);
    take_of(MemoryClass::parameters, e * l.tail(), kind.count - whole);
    take_of(MemoryClass::gradients, e * (candidate.stage < 2 ? l.padded() : l.shard()), kind.count);
    take_of(MemoryClass::gradients, kFp32 * l.shard(), kind.count * candidate.partial_sums());
    const std::int64_t own = candidate.stage == 0 ? l.padded() : l.shard();
    const std::int64_t codes = own * size_of(moment_dtype(candidate.moments));
    if (!fp32) take_state(kFp32 * own, kind.count);
    take_state(codes, 2 * kind.count);
    account.take(MemoryClass::optimizer, moment_bytes(candidate.moments, own) - codes,
                 2 * kind.count);
  }
  add_windows(candidate, account);
  account.take_of(shards, MemoryClass::gathered, arena.parameters);
  account.take_of(shards, MemoryClass::gathered, arena.gradients);
}

/// The ring of StateWindows, the slots of ShardFetches, and the tiles of StateHome, if any values
/// are below the device's memory.
void ClosedForms::add_windows(const Candidate& candidate, Account& account) {
  const TierOptions& tiers = base_.engine.tiers;
  const bool states = candidate.offload.optimizer != Tier::device;
  const std::int64_t window =
      tiers.windows.buffer_elements / StateWindowOptions::kGrain * StateWindowOptions::kGrain;
  std::int64_t pieces = 0;
  std::int64_t shards = 0;   // that are away
  std::int64_t fetched = 0;  // elements of the longest one's large parameters
  std::int64_t longest = 0;  // piece with states there
  std::int64_t longest_shard = 0;
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const FlatLayout& l = kinds(candidate)[k].layout;
    const std::int64_t own = candidate.stage == 0 ? l.padded() : l.shard();
    const std::int64_t away = windows(candidate).away[k];
    shards += away;
    pieces += div_ceil(own, window) * (states ? kinds(candidate)[k].count : away);
    if (states) longest = std::max(longest, std::min(own, window));
    if (away == 0) continue;
    longest_shard = std::max(longest_shard, std::min(own, window));
    fetched = std::max(fetched, std::min(own, l.tail_begin()));
  }
  if (pieces == 0) return;
  const auto room = [](std::int64_t elements, DType dtype) {
    return round_up(elements * size_of(dtype), TierFile::kBlock);
  };
  const bool fp32 = candidate.compute == DType::fp32;
  const std::int64_t piece = room(longest_shard, candidate.compute) +
                             2 * room(longest, moment_dtype(candidate.moments)) +
                             (fp32 ? 0 : room(longest, DType::fp32));
  const std::int64_t ring = std::min<std::int64_t>(tiers.windows.buffers, pieces) * piece;
  const std::int64_t slots =
      std::min<std::int64_t>(tiers.fetch_buffers, shards) * room(fetched, candidate.compute);
  if (account.gpu()) {
    const bool narrow =
        (states && candidate.moments != MomentFormat::fp32) || (shards > 0 && !fp32);
    account.take(MemoryClass::staging, ring + slots + (narrow ? StateHome::kDeviceTile : 0));
  }
  const std::int64_t filed = sum_of(account.use.file);
  if (filed == 0) return;
  // Of a GPU the twins of windows that pass to the file.
  const std::int64_t passing = ring + (candidate.offload.parameters == Tier::file ? slots : 0);
  const std::int64_t tile = std::min(StateHome::kTileRequests * tiers.file.block_bytes, filed);
  account.take_host(MemoryClass::staging,
                    round_up(passing + 2 * tile, TierFile::kBlock) + TierFile::kBlock);
}

/// The scratch of each group of several of NCCL's ranks: those that Mesh makes.
void ClosedForms::add_groups(const MeshShape& mesh, Account& account) const {
  const unsigned wide =
      (mesh.replicate > 1 ? 1U : 0U) | (mesh.shard > 1 ? 2U : 0U) | (mesh.tensor > 1 ? 4U : 0U);
  std::set<unsigned> groups;
  for (const unsigned axes : {7U, 1U, 2U, 4U, 3U, 6U}) groups.insert(axes & wide);
  groups.erase(0);
  account.take(MemoryClass::communication, nccl::kScratch, std::ssize(groups));
}

void ClosedForms::add_communication(const Candidate& candidate, Account& account) {
  const MeshShape& mesh = candidate.mesh;
  std::int64_t receive = 0;
  std::int64_t longest = 0;
  for (const UnitKind& kind : kinds(candidate)) {
    const std::int64_t length = GradientReducer::chunk(
        kind.layout, mesh.replicate, candidate.compute, base_.engine.limits, pieces_, backend_);
    longest = std::max(longest, length);
    if (mesh.shard == 1) continue;
    const View shape(nullptr, kind.layout.padded(), candidate.compute, nullptr);
    const Slices slices = Slices::strided(shape, mesh.shard, 0, length);
    receive = std::max(receive, reduce_scatter_workspace(backend_, slices));
  }
  account.take_of(mesh.shard, MemoryClass::communication, receive * size_of(candidate.compute));
  if (mesh.replicate > 1) {
    account.take_of(mesh.replicate, MemoryClass::communication, longest * kFp32);
  }
  const std::int64_t sums = StepSums::kCount * 8;
  account.take_host(MemoryClass::communication, sums);
  if (!account.gpu()) return;
  account.take(MemoryClass::communication, sums);
  add_groups(mesh, account);
}

/// TrainingState's host buffers, CodedMoments.
void ClosedForms::add_host(const Candidate& candidate, Account& account) const {
  const std::int64_t ids = candidate.micro * base_.data.sequence_length * 4;
  const std::int64_t slots = std::min<std::int64_t>(2, candidate.accumulation);
  account.take_host(MemoryClass::staging, 2 * slots * ids + 8);
  if (account.gpu() && candidate.moments == MomentFormat::eight_bit) {
    account.take_host(MemoryClass::staging, CodedMoments::kScales * kFp32);
  }
}

const std::vector<int>& ClosedForms::ranks(const Candidate& candidate) {
  std::vector<int>& ranks = ranks_[candidate.mesh.tensor];
  if (ranks.empty()) ranks = unlike_ranks(base_.model, candidate.mesh.tensor);
  return ranks;
}

MemoryUse ClosedForms::memory(const Candidate& candidate) {
  MemoryUse use;
  for (const int rank : ranks(candidate)) {
    rank_ = rank;
    Account account(common_, machine_.kind == DeviceKind::cuda, backend_);
    add(account.use, of_model(candidate).memory);
    add_states(candidate, account);
    add_communication(candidate, account);
    add_host(candidate, account);
    use = use.larger(account.use);
  }
  return use;
}

}  // namespace zero
