// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/planned_traffic.h"

#include <algorithm>

#include "engine/step_sums.h"

namespace zero {

MeshTraffic planned_traffic(const EngineResources& resources, const Sharding& sharding,
                            const GradientReducer& reducer, std::span<const Unit> units,
                            const Schedule& schedule, CountedMesh& mesh) {
  const EngineOptions& options = resources.options;
  const int reduces =
      options.reduction == ReductionPolicy::boundary ? 1 : resources.accumulation_steps;
  MeshTraffic traffic;
  const auto book = [&](const Communicator& along, Operation counted_as, Operation operation,
                        std::int64_t bytes, int times) {
    mesh.booked(traffic, along)
        .add(counted_as, Communicator::sent_bytes(operation, bytes, along.size()) * times);
  };
  const auto gather = [&](Operation counted_as, std::int64_t elements, DType dtype, int times) {
    book(resources.shards, counted_as, Operation::all_gather, elements * size_of(dtype), times);
  };
  for (const Window& window : schedule.windows) {
    if (window.kind == Window::Kind::gradients) continue;
    for (const Segment& segment : units[static_cast<std::size_t>(window.unit)].segments) {
      gather(Operation::all_gather, sharding.window_elements(segment), options.compute,
             resources.accumulation_steps);
    }
  }
  for (const Unit& unit : units) {
    const Segment* segment = unit.trainable();
    if (segment == nullptr) continue;
    const std::int64_t wire = segment->layout.world() * size_of(reducer.wire_dtype());
    const std::int64_t chunk = reducer.chunk(*segment);
    for (std::int64_t begin = 0; begin < segment->layout.shard(); begin += chunk) {
      const std::int64_t count = std::min(chunk, segment->layout.shard() - begin);
      book(resources.shards, sharding.reduce_traffic(), Operation::reduce_scatter, wire * count,
           reduces);
      book(resources.replicate, Operation::all_reduce, Operation::all_reduce,
           count * size_of(DType::fp32), reduces);
    }
    gather(Operation::all_gather, sharding.published_elements(*segment), options.compute, 1);
    gather(Operation::all_reduce, sharding.finished_elements(*segment), resources.gradient, 1);
  }
  book(mesh.world(), Operation::all_reduce, Operation::all_reduce,
       StepSums::kCount * size_of(DType::i64), 1);
  return traffic;
}

}  // namespace zero
