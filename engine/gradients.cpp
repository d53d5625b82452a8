// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gradients.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero {

static_assert(kAlignment % kNormBlock == 0, "a block of the gradient norm lies in one shard");

GradientReducer::GradientReducer(EngineResources resources, Sharding& sharding, const Waits& waits)
    : resources_(resources), sharding_(sharding), waits_(waits) {
  resources.device.kernels().defer_norm(norm_);
}

DType GradientReducer::wire_dtype() const {
  return resources_.options.reduction == ReductionPolicy::boundary ? resources_.gradient
                                                                   : resources_.options.compute;
}

DType GradientReducer::window_dtype(const Unit& unit) const {
  return unit.sums_uses ? DType::fp32 : resources_.options.compute;
}

// Buckets larger than the device's receive slices are cut further, which changes no bit of exact
// sums. Where slices are added on their way, only the bucket cuts: a whole shard is one collective,
// and receives a share of what the gradient's own window takes.
std::int64_t GradientReducer::chunk(const Segment& segment) const {
  return chunk(segment.layout, resources_.replicate.size(), wire_dtype(), resources_.options.limits,
               resources_.device.piece_sizes(), resources_.shards.run_backend());
}

std::int64_t GradientReducer::chunk(const FlatLayout& layout, int replicas, DType wire,
                                    const ScheduleLimits& limits, const PieceSizes& pieces,
                                    BackendKind backend) {
  const std::int64_t most = pieces.received_bytes;
  const std::int64_t world = layout.world();
  std::int64_t limit = limits.reduce_bucket_elements / world;
  if (!sums_on_the_way(backend)) {
    limit = std::min(limit, most / (std::max<std::int64_t>(1, world - 1) * size_of(wire)));
  }
  if (replicas > 1) limit = std::min(limit, most / size_of(DType::fp32));
  limit = limit / kAlignment * kAlignment;
  return std::min(std::max(limit, kAlignment), layout.shard());
}

void GradientReducer::allocate(const std::vector<Unit>& units) {
  std::int64_t bytes = 0;
  std::int64_t longest = 0;
  for (const Unit& unit : units) {
    const Segment* segment = unit.trainable();
    if (segment == nullptr || segment->layout.padded() == 0) continue;
    const View shape(nullptr, segment->layout.padded(), wire_dtype(), &resources_.device);
    const Slices slices = Slices::strided(shape, segment->layout.world(), 0, chunk(*segment));
    bytes =
        std::max(bytes, resources_.shards.reduce_scatter_workspace(slices) * size_of(wire_dtype()));
    longest = std::max(longest, chunk(*segment));
  }
  receive_ = resources_.shards.allocate(resources_.device, bytes, DType::u8,
                                        MemoryClass::communication, "receive slices");
  if (resources_.replicate.size() == 1) return;
  sums_ =
      resources_.replicate.allocate(resources_.device, longest, DType::fp32,
                                    MemoryClass::communication, "sums along the replicate axis");
}

/// Where an fp32 window is rounded for the wire: in place, but into the finished gradient where
/// that is whole (stages 0 and 1) and of the wire's dtype; nothing reads it before the unit's last
/// reduction of a step.
View GradientReducer::place_of_wire(const Segment& segment, View source) const {
  const View& whole = segment.gradient;
  const bool beside = whole.dtype() == wire_dtype() && whole.count() == source.count();
  return beside ? whole : source.reinterpret(wire_dtype(), source.count());
}

/// The gradient as it crosses ranks. An fp32 window of a shared unit is rounded once.
View GradientReducer::to_wire(Unit& unit, View source) {
  if (source.dtype() == wire_dtype()) return source;
  Stream& compute = resources_.device.compute();
  const View rounded = place_of_wire(*unit.trainable(), source);
  if (rounded.data() != source.data()) {
    waits_.wait(compute, unit.reduced, WaitSite::reduce_before_rewrite);
  }
  resources_.device.kernels().convert(compute, source, rounded);
  return rounded;
}

/// Adds a micro-batch's gradient to the full local gradient, on the compute stream.
void GradientReducer::accumulate_locally(Segment& segment, View source, int micro_batch) {
  Kernels& kernels = resources_.device.kernels();
  Stream& compute = resources_.device.compute();
  const View total = segment.gradient;
  if (source.data() == total.data()) return;
  if (micro_batch == 0) {
    kernels.convert(compute, source, total);
  } else if (total.dtype() == DType::fp32) {
    kernels.tree_reduce(compute, {source},
                        {.addends = {total}, .destination = total, .norm = nullptr});
  } else if (source.dtype() == DType::fp32) {
    kernels.tree_reduce(compute, {total},
                        {.addends = {source}, .destination = total, .norm = nullptr});
  } else {
    kernels.tree_reduce(compute, {total, source},
                        {.addends = {}, .destination = total, .norm = nullptr});
  }
}

GradientReducer::Target GradientReducer::merge(Segment& segment, int micro_batch) {
  Target target;
  std::vector<PartialSum>& held = segment.sums;
  const auto take = [&] {
    target.addends.push_back(segment.partials[held.back().buffer]);
    held.pop_back();
  };
  target.finished = micro_batch == resources_.accumulation_steps - 1;
  if (target.finished) {
    while (!held.empty()) take();
    target.destination = segment.gradient_shard;
    return target;
  }
  int level = 0;
  while (!held.empty() && held.back().level == level) {
    take();
    ++level;
  }
  std::size_t buffer = 0;  // the lowest that holds nothing
  while (std::any_of(held.begin(), held.end(),
                     [&](const PartialSum& sum) { return sum.buffer == buffer; }))
    ++buffer;
  held.push_back({level, buffer});
  target.destination = segment.partials.at(buffer);
  return target;
}

bool GradientReducer::alone() const {
  return resources_.shards.size() == 1 && resources_.replicate.size() == 1;
}

ReduceEpilogue GradientReducer::epilogue_of(const Segment& segment, const Target& target) const {
  const bool counts = target.finished && resources_.replicate.rank() == 0;
  return {.addends = target.addends,
          .destination = target.destination,
          .norm = counts ? norm_ : nullptr,
          .excluded = segment.excluded};
}

void GradientReducer::reduce_chunks(Unit& unit, View wire, const Target& target) {
  Stream& communication = resources_.device.communication();
  const Segment& segment = *unit.trainable();
  const std::int64_t length = chunk(segment);
  const ReduceEpilogue whole = epilogue_of(segment, target);
  const bool again = resources_.replicate.size() > 1;
  const View workspace =
      receive_.view().reinterpret(wire.dtype(), receive_.view().bytes() / size_of(wire.dtype()));
  for (std::int64_t begin = 0; begin < segment.layout.shard(); begin += length) {
    const std::int64_t count = std::min(length, segment.layout.shard() - begin);
    const ReduceEpilogue epilogue = whole.slice(begin, count);
    const View sum = again ? sums_.view().slice(0, count) : View();
    const Slices slices = Slices::strided(wire, segment.layout.world(), begin, count);
    resources_.shards.reduce_scatter(slices, again ? ReduceEpilogue{{}, sum, nullptr} : epilogue,
                                     workspace, communication,
                                     {unit.name, sharding_.reduce_traffic()});
    if (!again) continue;
    resources_.replicate.all_reduce(sum, ReduceOp::sum, communication, {unit.name, {}});
    resources_.device.kernels().tree_reduce(communication, {sum}, epilogue);
  }
}

/// One rank has no communication to overlap, so all compute threads finish the gradient, on the
/// compute stream. A gradient already in place is only read, for the norm.
Event GradientReducer::reduce_to(Unit& unit, View wire, const Target& target) {
  Stream& communication = resources_.device.communication();
  if (alone()) {
    resources_.device.kernels().tree_reduce(resources_.device.compute(), {wire},
                                            epilogue_of(*unit.trainable(), target));
  }
  waits_.wait(communication, resources_.device.compute().record(),
              WaitSite::gradient_before_reduce);
  if (!alone()) reduce_chunks(unit, wire, target);
  // Stage 0 alone gathers the sums; in others nothing is left to do.
  if (target.finished) sharding_.finish_gradient(*unit.trainable(), {unit.name, {}});
  return alone() ? Event() : communication.record();
}

void GradientReducer::recount_norm(const std::vector<Unit>& units) {
  Stream& communication = resources_.device.communication();
  communication.wait(resources_.device.compute().record());
  communication.submit_host("norm anew", [norm = norm_] { norm->clear(); });
  for (const Unit& unit : units) {
    const Segment* segment = unit.trainable();
    if (segment == nullptr || segment->layout.padded() == 0) continue;
    resources_.device.kernels().tree_reduce(
        communication, {segment->gradient_shard},
        epilogue_of(*segment, {{}, segment->gradient_shard, true}));
  }
}

Event GradientReducer::reduce(Unit& unit, View source, int micro_batch) {
  Segment& segment = *unit.trainable();
  if (resources_.options.reduction == ReductionPolicy::boundary) {
    accumulate_locally(segment, source, micro_batch);
    if (micro_batch < resources_.accumulation_steps - 1) return {};
    return reduce_to(unit, segment.gradient, {{}, segment.gradient_shard, true});
  }
  const View wire = to_wire(unit, source);
  const Event reduced = reduce_to(unit, wire, merge(segment, micro_batch));
  if (wire.data() == source.data()) return reduced;
  unit.reduced = reduced;  // the compute stream alone has read `source`
  return {};
}

/// The whole gradient of the step's unit, padded: its window, or the finished gradient itself.
View LeasedGradients::whole(const ScheduleStep& step) const {
  const Unit& unit = unit_of(step);
  if (step.gradients < 0) return unit.trainable()->gradient;
  return gathers_.windows().view(step.gradients, reducer_.window_dtype(unit));
}

void LeasedGradients::zero_padding(const Segment& segment, const View& whole) {
  std::vector<Placement> used = segment.layout.placements();
  std::ranges::sort(used, {}, &Placement::begin);
  used.push_back({-1, segment.layout.padded(), 0});
  std::int64_t end = 0;
  for (const Placement& next : used) {
    if (next.begin > end) {
      resources_.device.kernels().zero(resources_.device.compute(),
                                       whole.slice(end, next.begin - end));
    }
    end = std::max(end, next.range().end());
  }
}

void LeasedGradients::prepare(const ScheduleStep& step) {
  Unit& unit = unit_of(step);
  const Segment* segment = unit.trainable();
  if (segment == nullptr || !step.first_gradient) return;
  Stream& compute = resources_.device.compute();
  if (step.gradients >= 0) {
    gathers_.windows().before_write(step.gradients, compute);
  } else {
    waits_.wait(compute, unit.reduced, WaitSite::reduce_before_rewrite);
  }
  const View all = whole(step);
  if (resources_.options.checked) resources_.device.kernels().poison(compute, all);
  zero_padding(*segment, all);
  std::ranges::fill(unit.requested, 0);
}

View LeasedGradients::gradient(const ScheduleStep& step, int index) {
  Unit& unit = unit_of(step);
  if (!unit.segment_of(index).trainable) return {};
  const Placement& placement = unit.placement(index);
  const View view = whole(step).slice(placement.begin, placement.count);
  char& requested = unit.requested[static_cast<std::size_t>(index)];
  if (requested == 0 && !step.first_gradient)
    resources_.device.kernels().zero(resources_.device.compute(), view);  // the user adds to it
  requested = 1;
  return view;
}

void LeasedGradients::finish(const ScheduleStep& step, int micro_batch) {
  Unit& unit = unit_of(step);
  if (unit.trainable() == nullptr || !step.last_gradient) return;
  const View all = whole(step);
  for (int i = 0; i < unit.parameters(); ++i) {
    if (unit.requested[static_cast<std::size_t>(i)] != 0 || !unit.spec(i).trainable) continue;
    const Placement& placement = unit.placement(i);
    resources_.device.kernels().zero(resources_.device.compute(),
                                     all.slice(placement.begin, placement.count));
  }
  const Event reduced = reducer_.reduce(unit, all, micro_batch);
  if (step.gradients >= 0) {
    gathers_.windows().reduced(step.gradients, reduced);
  } else {
    unit.reduced = reduced;
  }
  resources_.wait_unless_overlapped();
}

}  // namespace zero
