// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/closed_forms.h"
#include "launch/train/memory_fit.h"
#include "ops/op_shapes.h"

namespace zero {
namespace {

constexpr double kBytesOfFp32 = 4;

/// What a rank of a group of n sends of an all-gather or a reduce-scatter of `bytes`.
double passed(double bytes, int n) { return bytes * (n - 1) / n; }

}  // namespace

/// Decoder::tensor_traffic() of a micro-batch: each block sums rows four times and, with the
/// residual stream cut too, gathers them six times; the embedding and the head sum and gather once;
/// what is computed again repeats its share. The ranks also gather their figures of softmax, and
/// holders of the same key/value heads sum these heads' gradients, and all the fp32 gradients of
/// norms over their own rows.
double ClosedForms::tensor_bytes(const Candidate& candidate) const {
  const int ranks = candidate.mesh.tensor;
  if (ranks == 1) return 0;
  const auto rows = static_cast<double>(candidate.micro * base_.data.sequence_length);
  const double once =
      passed(rows * static_cast<double>(base_.model.width * size_of(candidate.compute)), ranks);
  double times = 10 * static_cast<double>(base_.model.layers) + 4;
  const RecomputePlan plan = candidate.recompute.plan(base_.model.layers);
  for (std::int64_t i = 0; i < std::ssize(plan.blocks); ++i) {
    const BlockRecompute again = plan.block(i);
    times += (again.qkv ? 1 : 0) + (again.middle ? 1 : 0) + (again.hidden ? 1 : 0);
    if (plan.last_of_group(i) != i || (again.hidden && base_.model.branch_norms)) times += 1;
  }
  const SharedKeys keys = shared_keys(ranks);
  const auto gradients = static_cast<double>(keys.elements * size_of(candidate.compute));
  const double held = 2 * passed(gradients, keys.holders) * static_cast<double>(base_.model.layers);
  const DecoderShape& d = base_.model;
  const std::int64_t vectors = d.norm == NormKind::layer ? 2 : 1;  // of a norm
  const std::int64_t norms = d.layers * (d.branch_norms ? 4 : 2) + 1;
  const auto normed = static_cast<double>(norms * vectors * d.width);
  return once * times + passed(rows * ranks * kSoftmaxPart * kBytesOfFp32, ranks) + held +
         2 * passed(normed * kBytesOfFp32, ranks);
}

StepWork ClosedForms::work(const Candidate& candidate) {
  const MeshShape& mesh = candidate.mesh;
  const std::int64_t sequence = base_.data.sequence_length;
  const auto e = static_cast<double>(size_of(candidate.compute));
  const auto batches = static_cast<double>(candidate.accumulation);
  StepWork work;
  const double tokens = static_cast<double>(candidate.micro * sequence) * batches / mesh.tensor;
  work.repeated =
      tokens * recomputed_flop(base_.model, sequence, candidate.recompute.plan(base_.model.layers));
  work.flop = tokens * base_.model.flop_per_token(sequence) + work.repeated;
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
    replicate += batches * padded / mesh.shard * kBytesOfFp32 * 2;  // all-reduce of the shard's sum
  }
  work.sent = {passed(replicate, mesh.replicate), passed(shard, mesh.shard),
               batches * tensor_bytes(candidate)};
  return work;
}

}  // namespace zero
