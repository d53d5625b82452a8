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
  return work;
}

}  // namespace zero
