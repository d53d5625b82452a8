// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/ranking.h"

#include <algorithm>
#include <limits>

#include "launch/train/memory_fit.h"

namespace zero {
std::int64_t host_bytes(const MemoryUse& fullest, const Machine& machine) {
  return machine.kind == DeviceKind::cuda ? fullest.on_host() * machine.devices : 0;
}

Shortage Shortage::of(const MemoryUse& fullest, const Machine& machine) {
  const auto above = [](std::int64_t bytes, std::int64_t most) {
    return std::max<std::int64_t>(0, bytes - most);
  };
  const std::int64_t host = machine.host_memory;
  return {.of_device = above(fullest.bounded(), machine.budget()),
          .of_host = host == 0 ? 0 : above(host_bytes(fullest, machine), host)};
}

double step_seconds(const StepWork& work, const Candidate& candidate, const Machine& machine) {
  if (!machine.has_rates(candidate.compute)) return 0;
  const auto seconds_along = [&](Axis axis) {
    if (work.along(axis) == 0) return 0.0;
    const bool leaves = machine.leaves_host(axis, candidate.mesh);
    return work.along(axis) / (leaves ? machine.between_hosts : machine.within_host);
  };
  const double arithmetic = work.flop / machine.rate(candidate.compute);
  return std::max(arithmetic, seconds_along(Axis::replicate) + seconds_along(Axis::shard)) +
         seconds_along(Axis::tensor);
}

Ranked ranked(const TrainingQuestion& question, const Candidate& candidate, ClosedForms& forms) {
  Ranked row{
      .candidate = candidate, .memory = forms.memory(candidate), .work = forms.work(candidate)};
  row.bytes = row.memory.bounded();
  row.shortage = Shortage::of(row.memory, question.machine);
  row.step_seconds = step_seconds(row.work, candidate, question.machine);
  const double tokens = row.tokens = static_cast<double>(candidate.sequences() * question.sequence);
  const double ranks = question.machine.world();
  double between_hosts = 0;
  double within_hosts = 0;
  for (const Axis axis : kAllAxes) {
    const bool leaves = question.machine.leaves_host(axis, candidate.mesh);
    (leaves ? between_hosts : within_hosts) += row.work.along(axis);
  }
  row.cost = {.seconds = row.step_seconds > 0 || !question.machine.has_some_rates()
                             ? row.step_seconds * ranks / tokens
                             : std::numeric_limits<double>::infinity(),
              .flop = forms.flop_per_token() +
                      recomputed_flop(question.model, question.sequence,
                                      candidate.recompute.plan(question.model.layers)),
              .fp32 = candidate.compute == DType::fp32,
              .filed = row.work.filed * ranks / tokens,
              .copied = row.work.copied * ranks / tokens,
              .between_hosts = between_hosts * ranks / tokens,
              .within_hosts = within_hosts * ranks / tokens};
  return row;
}

Ranking rank_candidates(const TrainingQuestion& question, ClosedForms& forms) {
  Ranking ranking;
  for (const Candidate& candidate : candidates(question)) {
    Ranked row = ranked(question, candidate, forms);
    (row.shortage.none() ? ranking.fitting : ranking.missing).push_back(row);
  }
  std::ranges::stable_sort(ranking.fitting,
                           [](const Ranked& a, const Ranked& b) { return a.cost < b.cost; });
  std::ranges::stable_sort(ranking.missing, {},
                           [](const Ranked& row) { return row.shortage.sum(); });
  return ranking;
}

std::string order_text(const Machine& machine) {
  if (machine.has_some_rates()) {
    return "order: least estimated seconds a token: the larger of FLOP / compute and of what "
           "shards and replicas send / link, then what tensor ranks send / link; assumed: products "
           "reach the given compute rate, links their rates, and the first two overlap; dtypes "
           "without a rate stand last";
  }
  return "order: fewest FLOP a token, of as many 16 bits before fp32, then fewest bytes a token "
         "that files are read and written, then that pass between GPUs and their hosts, then that "
         "leave a host, then within hosts; equal rows stand in the order in which their values "
         "were listed. No rates are given and none is assumed: with "
         "--compute and links (--cluster FILE) the order is by estimated time";
}

Candidate plain_of(const Candidate& candidate) {
  Candidate plain = candidate;
  plain.stage = 0;
  plain.recompute = {};
  plain.moments = MomentFormat::fp32;
  plain.offload = {};
  plain.kept_inputs = KeptInputPlace::device;
  plain.mesh.shard *= plain.mesh.replicate;
  plain.mesh.replicate = 1;
  return plain;
}

}  // namespace zero
