// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends.h"
#include "launch/plan/closed_forms.h"
#include "launch/plan/exact_plan.h"
#include "launch/train/memory_fit.h"
#include "model/decoder.h"

namespace zero {
namespace {

constexpr double kBytesOfFp32 = 4;

/// What a rank of a group of n sends of an all-gather or a reduce-scatter of `bytes`.
double passed(double bytes, int n) { return bytes * (n - 1) / n; }

}  // namespace

/// Decoder::order(), asked of a decoder on a planning device.
const std::vector<Use>& ClosedForms::uses(const RecomputeChoice& recompute) {
  const bool grouped = recompute.kind == RecomputeChoice::Kind::groups;
  const auto [found, made] = uses_.try_emplace(grouped ? recompute.count : 0);
  if (!made) return found->second;
  const auto device = planned_device(base_);
  const auto alone = planning::communicator(0, 1, BackendKind::local, device.get());
  Mesh mesh(*alone, {1, 1, 1});
  Engine engine(mesh, *device, base_.engine);
  const RecomputePlan plan = grouped ? recompute.plan(base_.model.layers) : RecomputePlan();
  found->second = Decoder(engine, base_.model, {1, 1}, nullptr, {}, plan).order();
  return found->second;
}

/// What the first tensor rank sends in a micro-batch.
double ClosedForms::tensor_bytes(const Candidate& candidate) {
  if (candidate.mesh.tensor == 1) return 0;
  const auto [found, made] =
      tensor_bytes_.try_emplace({candidate.mesh.tensor, candidate.micro, candidate.compute,
                                 candidate.recompute.kind, candidate.recompute.count},
                                0);
  if (!made) return found->second;
  with_decoder(candidate, candidate.recompute.plan(base_.model.layers),
               [&](const Decoder& decoder, const Device& /*device*/) {
                 found->second = static_cast<double>(decoder.tensor_traffic().total());
               });
  return found->second;
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
    replicate += batches * padded / mesh.shard * kBytesOfFp32 * 2;  // all-reduce of the shard's sum
  }
  work.sent = {passed(replicate, mesh.replicate), passed(shard, mesh.shard),
               batches * tensor_bytes(candidate)};
  return work;
}

}  // namespace zero
