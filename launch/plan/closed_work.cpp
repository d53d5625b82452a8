// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/schedule.h"
#include "engine/whole_units.h"
#include "launch/plan/closed_forms.h"
#include "launch/train/memory_fit.h"

// What a rank gathers, what it keeps of parameters beside the windows of that, and what it computes
// and sends.
namespace zero {
namespace {

/// What a rank of a group of n sends of an all-gather or a reduce-scatter of `bytes`.
double passed(double bytes, int n) { return bytes * (n - 1) / n; }

}  // namespace

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
  size.gradient_bytes = size.gradient_elements * (kind.sums_uses ? size_of(DType::fp32) : e);
  return size;
}

/// The inputs of both schedules, with every unit gathered that has large parameters.
ScheduleInputs ClosedForms::schedule_inputs(const Candidate& candidate) {
  ScheduleInput training{of_model(candidate).order, {}, base_.engine.limits};
  for (const UnitKind& kind : kinds(candidate)) {
    training.units.insert(training.units.end(), static_cast<std::size_t>(kind.count),
                          size_of_unit(candidate, kind));
  }
  return with_evaluation(std::move(training));
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
    const std::int64_t shard = candidate.offload.parameters == Tier::device ? l.shard() : 0;
    const std::int64_t sharded = small ? l.padded() : shard + l.tail();
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

/// The sharded units but those that fit into TierOptions::parameters_in_memory.
void ClosedForms::put_away(const Candidate& candidate, Windows& windows) {
  std::int64_t room = base_.engine.tiers.parameters_in_memory;
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const std::int64_t shard = kind.layout.shard();
    const std::int64_t fitting = std::min(kind.count - windows.whole[k], room / shard);
    room -= fitting * shard;
    windows.away[k] = kind.count - windows.whole[k] - fitting;
  }
}

/// What gathers of a micro-batch bring together, and what they take from below the device's memory:
/// of equal units the last are there.
void ClosedForms::count_gathers(const Candidate& candidate, const ScheduleInput& input,
                                const Schedule& training, Windows& windows) {
  std::vector<std::int64_t> fetched;  // of each unit
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const std::int64_t part = std::min(kind.layout.shard(), kind.layout.tail_begin());
    fetched.insert(fetched.end(), static_cast<std::size_t>(kind.count - windows.away[k]), 0);
    fetched.insert(fetched.end(), static_cast<std::size_t>(windows.away[k]), part);
  }
  for (const Window& window : training.windows) {
    if (window.kind == Window::Kind::gradients) continue;
    const auto unit = static_cast<std::size_t>(window.unit);
    windows.gathered_elements += input.units[unit].gathered_elements;
    windows.fetched_elements += fetched[unit];
  }
}

const ClosedForms::Windows& ClosedForms::windows(const Candidate& candidate) {
  const bool grouped = candidate.recompute.kind == RecomputeChoice::Kind::groups;
  const bool away = candidate.offload.parameters != Tier::device;
  const auto [found, made] = windows_.try_emplace(
      {candidate.stage, candidate.mesh.tensor, rank_, candidate.mesh.shard, candidate.compute,
       candidate.accumulation == 1, grouped ? candidate.recompute.count : 0,
       moment_block(candidate.moments), away});
  Windows& windows = found->second;
  if (!made) return windows;
  ScheduleInputs inputs = schedule_inputs(candidate);
  if (candidate.stage == 3) keep_whole_units(candidate, inputs, windows);
  if (away) put_away(candidate, windows);
  const Schedule training = make_schedule(inputs.training);
  windows.parameters =
      std::max(training.gradients_begin, make_schedule(inputs.evaluation).gradients_begin);
  windows.gradients = std::max<std::int64_t>(training.arena_bytes - training.gradients_begin, 0);
  count_gathers(candidate, inputs.training, training, windows);
  return windows;
}

/// What a step reads of the states in a tier for their update, and writes behind it. Masters and
/// moments pass both ways; a compute copy is written, but in fp32 it is the master.
double ClosedForms::updated_bytes(const Candidate& candidate, Tier tier) {
  const std::int64_t e = size_of(candidate.compute);
  const bool fp32 = candidate.compute == DType::fp32;
  const std::int64_t of_state =
      2 * size_of(moment_dtype(candidate.moments)) + (fp32 ? 0 : size_of(DType::fp32));
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const std::int64_t own = candidate.stage == 0 ? kind.layout.padded() : kind.layout.shard();
    if (candidate.offload.optimizer == tier) bytes += 2 * of_state * own * kind.count;
    if (candidate.offload.parameters == tier) {
      bytes += (fp32 ? 2 : 1) * e * own * windows(candidate).away[k];
    }
  }
  return static_cast<double>(bytes);
}

/// What a step's gathers take of the shards in a tier.
double ClosedForms::fetched_bytes(const Candidate& candidate, Tier tier) {
  if (candidate.offload.parameters != tier) return 0;
  return static_cast<double>(candidate.accumulation) *
         static_cast<double>(windows(candidate).fetched_elements * size_of(candidate.compute));
}

StepWork ClosedForms::work(const Candidate& candidate) {
  rank_ = ranks(candidate).front();
  const MeshShape& mesh = candidate.mesh;
  const std::int64_t sequence = base_.data.sequence_length;
  const auto e = static_cast<double>(size_of(candidate.compute));
  const auto fp32 = static_cast<double>(size_of(DType::fp32));
  const auto batches = static_cast<double>(candidate.accumulation);
  StepWork work;
  const double tokens = static_cast<double>(candidate.micro * sequence) * batches / mesh.tensor;
  work.repeated =
      tokens * recomputed_flop(base_.model, sequence, candidate.recompute.plan(base_.model.layers));
  work.flop = tokens * flop_per_token_ + work.repeated;
  double shard = batches * static_cast<double>(windows(candidate).gathered_elements) * e;
  double replicate = 0;
  for (std::size_t k = 0; k < kinds(candidate).size(); ++k) {
    const UnitKind& kind = kinds(candidate)[k];
    const auto padded = static_cast<double>(kind.layout.padded() * kind.count);
    const std::int64_t whole = candidate.stage < 3 ? kind.count : windows(candidate).whole[k];
    const auto published = static_cast<double>(kind.layout.padded() * whole +
                                               kind.layout.tail() * (kind.count - whole));
    shard += batches * padded * e;  // each micro-batch's gradient
    shard += published * e;         // what the update changed, or stage 0's sum
    replicate += batches * padded / mesh.shard * fp32 * 2;  // all-reduce of the shard's sum
  }
  work.sent = {passed(replicate, mesh.replicate), passed(shard, mesh.shard),
               batches * of_model(candidate).sent};
  work.filed = updated_bytes(candidate, Tier::file) + fetched_bytes(candidate, Tier::file);
  if (machine_.kind == DeviceKind::cpu) return work;
  work.copied = work.filed + updated_bytes(candidate, Tier::host) +
                fetched_bytes(candidate, Tier::host) + batches * of_model(candidate).copied;
  return work;
}

}  // namespace zero
