// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/closed_forms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "architecture/decoder_parameters.h"
#include "base/checked_math.h"
#include "collectives/backends.h"
#include "collectives/nccl/plan.h"
#include "device/arena_layout.h"
#include "device/kernel_scratch.h"
#include "engine/sharding.h"
#include "engine/step_sums.h"
#include "launch/plan/closed_activations.h"
#include "launch/plan/exact_plan.h"
#include "launch/plan/model_states.h"
#include "model/decoder.h"
#include "model/vocabulary_parallel.h"
#include "partition/tensor_slice.h"

namespace zero {
namespace {

constexpr std::int64_t kHostValues = std::int64_t{256} << 10;  // collectives/host_values.cpp
constexpr std::int64_t kHostPiece = std::int64_t{1} << 20;     // HostAccess::kPieceBytes
constexpr std::int64_t kCodedScales = 4100;                    // CodedMoments
constexpr std::int64_t kFp32 = 4;

std::size_t ledger_place(MemoryClass c) { return static_cast<std::size_t>(c); }

/// The rows of one rank's activations.
DecoderRows rows_of(const DecoderShape& whole, const DecoderShape& local,
                    const Candidate& candidate, std::int64_t sequence, int chunks,
                    const PieceSizes& pieces) {
  DecoderRows rows{.all = candidate.micro * sequence,
                   .sequence = sequence,
                   .ranks = candidate.mesh.tensor,
                   .sequence_parallel = candidate.sequence_parallel()};
  rows.own = rows.sequence_parallel ? RowCut(rows.all, rows.ranks, chunks).own_rows(0) : rows.all;
  const std::int64_t largest =
      round_up(div_ceil(whole.vocabulary, rows.ranks), pieces.logit_columns);
  rows.logits = VocabularyParallelHead::piece_rows(pieces, rows.all, largest, candidate.compute);
  rows.logit_columns = round_up(local.vocabulary, pieces.logit_columns);
  return rows;
}

DecoderSplit first_split(const DecoderShape& model, int tensor) {
  return DecoderSplit::of(model, 0, tensor, DecoderSplit::Tables::cut);
}

}  // namespace

/// Adds up buffers as a planning device does: those of Device::allocate lie in a class's block,
/// those of Communicator::allocate in NCCL's memory if they are large, in whole pages.
class ClosedForms::Account {
 public:
  Account(DeviceKind kind, BackendKind backend)
      : gpu_(kind == DeviceKind::cuda), nccl_(backend == BackendKind::nccl) {}

  void take(MemoryClass of, std::int64_t bytes, std::int64_t count = 1) {
    use.ledger[ledger_place(of)] += bytes * count;
    if (gpu_)
      use.device.arenas[ledger_place(of)] += round_up(bytes, ArenaLayout::kAlignment) * count;
  }
  void take_of(int ranks, MemoryClass of, std::int64_t bytes, std::int64_t count = 1) {
    if (!nccl_ || !nccl::gives_memory(ranks, bytes, DType::u8)) return take(of, bytes, count);
    use.ledger[ledger_place(of)] += bytes * count;
    use.device.adopted += round_up(bytes, DeviceBytes::kPage) * count;
  }
  void take_host(MemoryClass of, std::int64_t bytes) { use.ledger[ledger_place(of)] += bytes; }
  bool gpu() const { return gpu_; }

  MemoryUse use{};

 private:
  bool gpu_;
  bool nccl_;
};

ClosedForms::ClosedForms(const TrainConfig& base, const Machine& machine)
    : base_(base),
      machine_(machine),
      backend_(machine.backend()),
      pieces_(planned_device(base)->piece_sizes()),
      flop_per_token_(base.model.flop_per_token(base.data.sequence_length)) {}

ClosedForms::~ClosedForms() = default;

/// Unit::lay_out() of the first tensor rank's slices.
const ClosedForms::Kinds& ClosedForms::kinds(const Candidate& candidate) {
  const MeshShape& mesh = candidate.mesh;
  const std::int64_t alignment = std::max(kAlignment, moment_block(candidate.moments));
  const auto [found, made] = kinds_.try_emplace({mesh.tensor, mesh.shard, alignment});
  if (!made) return found->second;
  const DecoderParameters parameters(first_split(base_.model, mesh.tensor));
  std::vector<int> backward_uses(parameters.units.size(), 0);
  for (const Use& use : uses({})) {
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

/// Calls `ask` with a decoder of the first tensor rank, on a planning device.
void ClosedForms::with_decoder(const Candidate& candidate, const RecomputePlan& plan,
                               const AskDecoder& ask) const {
  const int tensor = candidate.mesh.tensor;
  const auto device = planned_device(base_);
  const auto ranks = planning::communicator(0, tensor, backend_of_group(tensor), device.get());
  Mesh mesh(*ranks, {1, 1, tensor});
  EngineOptions options = base_.engine;
  options.compute = candidate.compute;
  options.gradient.reset();
  Engine engine(mesh, *device, options);
  TensorOptions cut = base_.tensor;
  cut.sequence_parallel = candidate.sequence_parallel();
  ask(Decoder(engine, base_.model, {candidate.micro, base_.data.sequence_length}, nullptr, cut,
              plan),
      *device);
}

/// Ops::scratch_bytes() of a decoder's shapes: what the decoder's activations are beyond its own
/// memory.
std::int64_t ClosedForms::scratch(const Candidate& candidate) {
  const int tensor = candidate.mesh.tensor;
  const auto [found, made] = scratch_.try_emplace({tensor, candidate.micro, candidate.compute}, 0);
  if (!made) return found->second;
  with_decoder(candidate, {}, [&](const Decoder& decoder, Device& device) {
    const DecoderShape local = first_split(base_.model, tensor).local;
    const DecoderMemory memory(local,
                               rows_of(base_.model, local, candidate, base_.data.sequence_length,
                                       base_.tensor.chunks, pieces_),
                               candidate.compute, RecomputePlan().on(device));
    found->second = decoder.activation_bytes() - memory.bytes();
  });
  return found->second;
}

/// A group of one rank has no backend of several.
BackendKind ClosedForms::backend_of_group(int ranks) const {
  return ranks == 1 ? BackendKind::local : backend_;
}

/// schedule_input() of engine_seal.cpp.
UnitSize ClosedForms::size_of_unit(const Candidate& candidate, const UnitKind& kind) const {
  UnitSize size;
  const std::int64_t e = size_of(candidate.compute);
  if (candidate.stage == 3) size.gathered_elements = kind.layout.tail_begin();
  size.gathered_bytes = size.gathered_elements * e;
  const bool fp32 = candidate.compute == DType::fp32;
  const bool rounded_first = kind.sums_uses && !fp32;
  const bool direct = candidate.stage <= 1 && !rounded_first &&
                      (candidate.accumulation == 1 || !fp32);  // Sharding::direct_gradients
  if (direct) return size;
  size.gradient_elements = kind.layout.padded();
  size.gradient_bytes = size.gradient_elements * (kind.sums_uses ? kFp32 : e);
  return size;
}

/// The inputs of both schedules, with every unit gathered that has large parameters.
ScheduleInputs ClosedForms::schedule_inputs(const Candidate& candidate) {
  ScheduleInput training{uses(candidate.recompute), {}, base_.engine.limits};
  for (const UnitKind& kind : kinds(candidate)) {
    training.units.insert(training.units.end(), static_cast<std::size_t>(kind.count),
                          size_of_unit(candidate, kind));
  }
  ScheduleInputs inputs{training, training};
  inputs.evaluation.uses.clear();
  for (const Use& use : training.uses) {
    if (use.phase == Phase::forward || use.phase == Phase::both) {
      inputs.evaluation.uses.push_back({use.unit, Phase::forward, use.needs_parameters});
    }
  }
  return inputs;
}

/// EngineCore::lay_out_units(): stage 3 keeps units whole that are cheaper so.
void ClosedForms::keep_whole_units(const Candidate& candidate, ScheduleInputs& inputs,
                                   Windows& windows) {
  const ScheduleLimits& limits = base_.engine.limits;
  const std::int64_t e = size_of(candidate.compute);
  std::vector<KeptBytes> kept;
  std::vector<std::size_t> kind_of;
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const FlatLayout& l = kind.layout;
    const bool small = l.tail_begin() == 0;
    const std::int64_t sharded = small ? l.padded() : l.shard() + l.tail();
    kept.insert(kept.end(), static_cast<std::size_t>(kind.count), {e * sharded, e * l.padded()});
    kind_of.insert(kind_of.end(), static_cast<std::size_t>(kind.count), k);
    if (small) windows.whole[k] = kind.count;
  }
  if (limits.prefetch_elements || limits.persistence_threshold) return;
  const std::vector<bool> whole = choose_whole_units(inputs, kept);
  for (std::size_t unit = 0; unit < whole.size(); ++unit) {
    if (!whole[unit] || inputs.training.units[unit].gathered_elements == 0) continue;
    ++windows.whole[kind_of[unit]];
    for (ScheduleInput* input : {&inputs.training, &inputs.evaluation}) {
      input->units[unit].gathered_elements = input->units[unit].gathered_bytes = 0;
    }
  }
}

const ClosedForms::Windows& ClosedForms::windows(const Candidate& candidate) {
  const bool grouped = candidate.recompute.kind == RecomputeChoice::Kind::groups;
  const auto [found, made] = windows_.try_emplace(
      {candidate.stage, candidate.mesh.tensor, candidate.mesh.shard, candidate.compute,
       candidate.accumulation == 1, grouped ? candidate.recompute.count : 0,
       moment_block(candidate.moments)});
  Windows& windows = found->second;
  if (!made) return windows;
  ScheduleInputs inputs = schedule_inputs(candidate);
  if (candidate.stage == 3) keep_whole_units(candidate, inputs, windows);
  const Schedule training = make_schedule(inputs.training);
  windows.parameters =
      std::max(training.gradients_begin, make_schedule(inputs.evaluation).gradients_begin);
  windows.gradients = std::max<std::int64_t>(training.arena_bytes - training.gradients_begin, 0);
  for (const Window& window : training.windows) {
    if (window.kind == Window::Kind::gradients) continue;
    windows.gathered_elements +=
        inputs.training.units[static_cast<std::size_t>(window.unit)].gathered_elements;
  }
  return windows;
}

void ClosedForms::add_states(const Candidate& candidate, Account& account) {
  const int shards = candidate.mesh.shard;
  const std::int64_t e = size_of(candidate.compute);
  const bool fp32 = candidate.compute == DType::fp32;
  int partials = held_partials(static_cast<int>(candidate.accumulation));
  if (fp32 && partials > 0) --partials;  // the finished gradient is one of them
  const Windows& arena = windows(candidate);
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const FlatLayout& l = kind.layout;
    const auto take_of = [&](MemoryClass of, std::int64_t bytes) {
      account.take_of(shards, of, bytes, kind.count);
    };
    const std::int64_t whole = candidate.stage < 3 ? kind.count : arena.whole[k];
    account.take_of(shards, MemoryClass::parameters, e * l.padded(), whole);
    account.take_of(shards, MemoryClass::parameters, e * l.shard(), kind.count - whole);
    account.take_of(shards, MemoryClass::parameters, e * l.tail(), kind.count - whole);
    take_of(MemoryClass::gradients, e * (candidate.stage < 2 ? l.padded() : l.shard()));
    for (int i = 0; i < partials; ++i) take_of(MemoryClass::gradients, kFp32 * l.shard());
    const std::int64_t own = candidate.stage == 0 ? l.padded() : l.shard();
    if (!fp32) account.take(MemoryClass::optimizer, kFp32 * own, kind.count);
    account.take(MemoryClass::optimizer, moment_bytes(candidate.moments, own), 2 * kind.count);
  }
  account.take_of(shards, MemoryClass::gathered, arena.parameters);
  account.take_of(shards, MemoryClass::gathered, arena.gradients);
}

void ClosedForms::add_activations(const Candidate& candidate, Account& account) {
  const DecoderShape local = first_split(base_.model, candidate.mesh.tensor).local;
  RecomputePlan plan = candidate.recompute.plan(base_.model.layers);
  plan.outputs = base_.recompute.plan.outputs;
  if (plan.outputs == BlockOutputs::of_device) {
    plan.outputs = account.gpu() ? BlockOutputs::kept : BlockOutputs::again;
  }
  account.take_of(
      candidate.mesh.tensor, MemoryClass::activations,
      closed_activations(local,
                         rows_of(base_.model, local, candidate, base_.data.sequence_length,
                                 base_.tensor.chunks, pieces_),
                         candidate.compute, plan));
  account.take(MemoryClass::activations, scratch(candidate));
}

/// GradientReducer::chunk().
std::int64_t ClosedForms::chunk(const Candidate& candidate, const FlatLayout& layout) const {
  const std::int64_t world = layout.world();
  const std::int64_t e = size_of(candidate.compute);
  const std::int64_t by_bucket = base_.engine.limits.reduce_bucket_elements / world;
  std::int64_t by_memory = pieces_.received_bytes / (std::max<std::int64_t>(1, world - 1) * e);
  if (candidate.mesh.replicate > 1) {
    by_memory = std::min(by_memory, pieces_.received_bytes / kFp32);
  }
  const std::int64_t limit = std::min(by_bucket, by_memory) / kAlignment * kAlignment;
  return std::min(std::max(limit, kAlignment), layout.shard());
}

/// Decoder::shared_keys().
ClosedForms::SharedKeys ClosedForms::shared_keys(int tensor) const {
  if (base_.model.kv_heads >= tensor) return {};
  const DecoderSplit split = first_split(base_.model, tensor);
  return {split.heads.keys.holders,
          2 * split.local.kv_heads * base_.model.head_width * base_.model.width};
}

/// TensorParallel::prepare() for the widest sums: of rows, or of the gradients of shared keys.
std::int64_t ClosedForms::tensor_workspace(const Candidate& candidate) const {
  const int ranks = candidate.mesh.tensor;
  const RowCut cut(candidate.micro * base_.data.sequence_length, ranks, base_.tensor.chunks);
  const std::int64_t width = base_.model.width;
  Slices slices{View(nullptr, cut.rows() * width, candidate.compute, nullptr), {}};
  for (int rank = 0; rank < ranks; ++rank) {
    const Slices::Range share = cut.share(0, rank);
    slices.ranges.push_back({share.begin * width, share.count * width});
  }
  const auto bytes = [&](const Slices& of) {
    return reduce_scatter_workspace(backend_, of) * size_of(candidate.compute);
  };
  const SharedKeys keys = shared_keys(ranks);
  Slices gradient{View(nullptr, keys.elements, candidate.compute, nullptr), {}};
  for (int rank = 0; rank < keys.holders; ++rank) {
    const TensorSlice::Range share = even_range(keys.elements, rank, keys.holders);
    gradient.ranges.push_back({share.begin, share.count});
  }
  return std::max(bytes(slices), keys.holders > 1 ? bytes(gradient) : 0);
}

/// The scratch of each group of several of NCCL's ranks: those that Mesh makes.
void ClosedForms::add_groups(const MeshShape& mesh, Account& account) const {
  if (!account.gpu() || machine_.world() == 1) return;
  std::set<std::array<int, kAxes>> groups;
  for (const auto& [replicate, shard, tensor] :
       {std::array<int, 3>{1, 1, 1}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 0}, {0, 1, 1}}) {
    const std::array<int, kAxes> sizes{replicate == 1 ? mesh.replicate : 1,
                                       shard == 1 ? mesh.shard : 1, tensor == 1 ? mesh.tensor : 1};
    if (sizes[0] * sizes[1] * sizes[2] > 1) groups.insert(sizes);
  }
  const bool holders = shared_keys(mesh.tensor).holders > 1;
  account.take(MemoryClass::communication, nccl::kScratch, std::ssize(groups) + (holders ? 1 : 0));
}

void ClosedForms::add_communication(const Candidate& candidate, Account& account) {
  const MeshShape& mesh = candidate.mesh;
  std::int64_t receive = 0;
  std::int64_t longest = 0;
  for (const UnitKind& kind : kinds(candidate)) {
    const std::int64_t length = chunk(candidate, kind.layout);
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
  if (mesh.tensor > 1) {
    account.take_of(mesh.tensor, MemoryClass::communication, tensor_workspace(candidate));
  }
  add_groups(mesh, account);
  const std::int64_t sums = StepSums::kCount * 8;
  account.take_host(MemoryClass::communication, sums);
  if (!account.gpu()) return;
  account.take(MemoryClass::communication, sums);
  account.take(MemoryClass::communication, ExactSum::kLimbs * 8, 2);
  account.take_host(MemoryClass::communication, 2 * ExactSum::kLimbs * 8);
}

/// TrainingState's host buffers, DeviceMirror, HostAccess, KernelScratch, values of the host.
void ClosedForms::add_host(const Candidate& candidate, Account& account) const {
  const std::int64_t ids = candidate.micro * base_.data.sequence_length * 4;
  const std::int64_t slots = std::min<std::int64_t>(2, candidate.accumulation);
  account.take_host(MemoryClass::staging, 2 * slots * ids + 8);
  if (!account.gpu()) return;
  account.take(MemoryClass::other, kHostValues);
  account.take(MemoryClass::staging, ids, 2);
  account.take(MemoryClass::staging, 8);
  if (candidate.moments == MomentFormat::eight_bit) {
    account.take_host(MemoryClass::staging, kCodedScales);
  }
  account.take_host(MemoryClass::staging, 2 * kHostPiece);
  account.take_host(MemoryClass::staging, 2 * KernelScratch::kPieceElements * kFp32);
}

MemoryUse ClosedForms::memory(const Candidate& candidate) {
  Account account(machine_.kind, backend_);
  add_states(candidate, account);
  add_activations(candidate, account);
  add_communication(candidate, account);
  add_host(candidate, account);
  return account.use;
}

}  // namespace zero
