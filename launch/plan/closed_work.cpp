// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/closed_forms.h"
#include "launch/train/memory_fit.h"

// What a rank computes and sends.
namespace zero {
namespace {

/// What a rank of a group of n sends of an all-gather or a reduce-scatter of `bytes`.
double passed(double bytes, int n) { return bytes * (n - 1) / n; }

}  // namespace

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
