// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gathers.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zero {
namespace {

Buffer allocate(const EngineResources& resources, std::int64_t bytes, std::string_view label) {
  return resources.shards.allocate(resources.device, bytes, DType::u8, MemoryClass::gathered,
                                   label);
}

/// Parameter windows, whose contents are equal on all ranks, may be memory that the ranks of a host
/// share: a gather starts once all ranks have released the window, and ends once all have written.
/// Checked mode poisons windows, so there each rank has its own.
Buffer allocate_parameters(const EngineResources& resources, const Schedules& schedules) {
  const std::int64_t bytes =
      std::max(schedules.training.gradients_begin, schedules.evaluation.gradients_begin);
  if (resources.options.checked) return allocate(resources, bytes, "windows");
  return resources.shards
      .allocate_shared(resources.device, bytes, DType::u8, MemoryClass::gathered, "windows")
      .buffer;
}

Buffer allocate_gradients(const EngineResources& resources, const Schedules& schedules) {
  const Schedule& training = schedules.training;
  return allocate(resources,
                  std::max<std::int64_t>(training.arena_bytes - training.gradients_begin, 0),
                  "gradient windows");
}

}  // namespace

WindowArena::WindowArena(const Schedule& schedule, View memory, const Waits& waits, View gradients)
    : schedule_(schedule),
      memory_(memory),
      gradients_(gradients),
      waits_(waits),
      guards_(schedule.windows.size()) {
  ZERO_CHECK(memory.bytes() + gradients.bytes() >= schedule.arena_bytes,
             "window arena has {} bytes, the schedule needs {}", memory.bytes() + gradients.bytes(),
             schedule.arena_bytes);
}

View WindowArena::view(int window, DType dtype, std::int64_t count) const {
  const Window& w = schedule_.window(window);
  const bool gradient = w.kind == Window::Kind::gradients;
  const View& memory = gradient ? gradients_ : memory_;
  const std::int64_t begin = w.offset - (gradient ? schedule_.gradients_begin : 0);
  const std::int64_t size = size_of(memory.dtype());
  return memory.slice(begin / size, w.bytes / size).reinterpret(dtype, count);
}

void WindowArena::before_gather(int window, Stream& communication) const {
  waits_.wait(communication, guards_[index(window)].released, WaitSite::release_before_gather);
  for (const int other : schedule_.window(window).conflicts) {
    waits_.wait(communication, guards_[index(other)].released, WaitSite::release_before_gather);
  }
}

void WindowArena::before_write(int window, Stream& compute) const {
  waits_.wait(compute, guards_[index(window)].reduced, WaitSite::reduce_before_rewrite);
  for (const int other : schedule_.window(window).conflicts) {
    waits_.wait(compute, guards_[index(other)].reduced, WaitSite::reduce_before_rewrite);
  }
}

Gathers::Gathers(const EngineResources& resources, Sharding& sharding, Waits& waits,
                 std::span<const Unit> units, Schedules schedules, StateHome& home)
    : resources_(resources),
      sharding_(sharding),
      waits_(waits),
      units_(units),
      parameters_(allocate_parameters(resources, schedules)),
      gradients_(allocate_gradients(resources, schedules)),
      training_(std::move(schedules.training), parameters_.view(), gradients_.view(), waits),
      evaluation_(std::move(schedules.evaluation), parameters_.view(), gradients_.view(), waits),
      fetches_(resources.device, waits, sharding, units, home,
               resources.options.tiers.fetch_buffers) {}

void Gathers::issue(int window) {
  const Unit& unit = unit_at(schedule().window(window).unit);
  Stream& communication = resources_.device.communication();
  windows().before_gather(window, communication);
  windows().fetched(window, fetches_.before_gather(unit));
  waits_.wait(communication, windows().fetched(window), WaitSite::fetch_before_gather);
  View memory = windows().view(window, resources_.options.compute);
  for (const Segment& segment : unit.segments) {
    const std::int64_t count = sharding_.window_elements(segment);
    sharding_.gather(segment, fetches_.source(segment), memory.slice(0, count), {unit.name, {}});
    memory = memory.slice(count, memory.count() - count);
  }
  windows().gathered(window, communication.record());
  fetches_.after_gather(unit, windows().gathered(window));
  if (!resources_.options.overlap) wait_for_fetch(window);
  resources_.wait_unless_overlapped();
}

/// Compute waits for the gather behind the fetch too: this tells the disk's time apart.
void Gathers::wait_for_fetch(int window) {
  const Event& fetched = windows().fetched(window);
  if (fetched.state() == nullptr) return;
  waits_.wait_for_tier(resources_.device.compute(), fetched, WaitSite::fetch_before_gather);
}

void Gathers::publish(Unit& unit, Kind kind) {
  Device& device = resources_.device;
  waits_.wait(device.communication(), device.compute().record(), WaitSite::update_before_gather);
  for (Segment& segment : unit.segments) {
    if (segment.trainable == (kind == Kind::trainable)) sharding_.publish(segment, {unit.name, {}});
  }
  unit.ready = device.communication().record();
  resources_.wait_unless_overlapped();
}

void Gathers::begin_micro_batch() {
  fetches_.begin(schedule());
  fetches_.read_ahead();
  for (const int window : schedule().begin) issue(window);
}

void Gathers::begin_after_update(int unit, FirstGathers& first) {
  if (first.updated.empty()) fetches_.begin(schedule());
  first.updated.push_back(unit);
  const std::vector<int>& begin = schedule().begin;
  for (; first.issued < begin.size(); ++first.issued) {
    const int window = begin[first.issued];
    const int needed = schedule().window(window).unit;
    if (std::ranges::find(first.updated, needed) == first.updated.end()) return;
    issue(window);
  }
}

void Gathers::make_present(const ScheduleStep& step) {
  Stream& compute = resources_.device.compute();
  fetches_.read_ahead();  // all units are updated
  for (const int window : step.gathers) issue(window);
  if (step.parameters >= 0) {
    wait_for_fetch(step.parameters);
    waits_.wait(compute, windows().gathered(step.parameters), WaitSite::gather_before_use);
  }
  waits_.wait(compute, unit_at(step.use.unit.index).ready, WaitSite::publish_before_use);
}

View Gathers::parameter(const ScheduleStep& step, int index) const {
  const Unit& unit = unit_at(step.use.unit.index);
  ZERO_CHECK(step.use.needs_parameters,
             "parameter {} of unit \"{}\": this use was declared with needs_parameters = false",
             index, unit.name);
  const Placement& placement = unit.placement(index);
  const Segment& chosen = unit.segment_of(index);
  View window;
  if (step.parameters >= 0) {
    std::int64_t begin = 0;
    for (const Segment& segment : unit.segments) {
      if (&segment == &chosen) break;
      begin += sharding_.window_elements(segment);
    }
    window = driven()
                 .windows.view(step.parameters, resources_.options.compute)
                 .slice(begin, sharding_.window_elements(chosen));
  }
  return sharding_.parameters(chosen, window, placement.begin, placement.count);
}

void Gathers::release(const ScheduleStep& step) {
  if (resources_.options.checked) {
    resources_.device.kernels().poison(resources_.device.compute(),
                                       windows().view(step.parameters, resources_.options.compute));
  }
  windows().released(step.parameters, resources_.device.compute().record());
}

}  // namespace zero
