// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/unit.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/message_text.h"
#include "engine/state_access.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

void check_slice(const std::string& unit, const ParameterSpec& spec, const std::string& full_name,
                 int tensor) {
  const TensorSlice& slice = *spec.slice;
  slice.check(full_name);
  ZERO_CHECK(tensor > 1 || spec.count() == spec.logical_count(),
             "add_unit({}): parameter \"{}\" is a slice {} of {}, but the mesh has one rank on "
             "its tensor "
             "axis; expected all of it",
             unit, full_name, shape_text(spec.shape), shape_text(slice.shape));
  ZERO_CHECK(spec.shape == slice.local_shape(),
             "add_unit({}): parameter \"{}\" has shape {}, but its slice of {} is {}", unit,
             full_name, shape_text(spec.shape), shape_text(slice.shape),
             shape_text(slice.local_shape()));
}

/// Cuts a parameter's own elements into parts that one LogicalElements names: one part, or of a
/// sliced parameter one for each series of runs of equal length and distance.
std::vector<UpdateRun> named_runs(const ParameterSpec& spec, std::uint64_t name,
                                  const FlatRange& local) {
  std::vector<UpdateRun> runs;
  std::int64_t last = 0;  // first logical element of the last run that was joined
  spec.for_each_run(local.begin, local.count, [&](const TensorSlice::Run& run) {
    if (!runs.empty()) {
      UpdateRun& joined = runs.back();
      LogicalElements& elements = joined.elements;
      const bool second = joined.count == elements.run;
      const std::int64_t distance = run.logical - last;
      if (run.count == elements.run && distance > 0 && (second || distance == elements.stride)) {
        elements.stride = distance;
        joined.count += run.count;
        last = run.logical;
        return;
      }
    }
    runs.push_back({.begin = run.local - local.begin,
                    .count = run.count,
                    .elements = {.parameter = name, .first = run.logical, .run = run.count}});
    last = run.logical;
  });
  return runs;
}

}  // namespace

std::vector<UpdateRun> UpdateRun::within(const FlatRange& part) const {
  const FlatRange kept = FlatRange{begin, count}.within(part);
  std::vector<UpdateRun> parts;
  for (std::int64_t at = kept.begin; at < kept.end(); at += parts.back().count) {
    UpdateRun next = *this;
    next.begin = at;
    next.count = kept.end() - at;
    next.elements.first = elements.at(at - begin);
    const std::int64_t phase = (at - begin) % elements.run;
    if (phase > 0) {  // the rest of a series of consecutive elements, then whole ones
      next.elements.run = LogicalElements().run;
      next.count = std::min(next.count, elements.run - phase);
    }
    parts.push_back(next);
  }
  return parts;
}

Unit Unit::make(std::string name, std::vector<ParameterSpec> parameters, int tensor) {
  ZERO_CHECK(!name.empty(), "add_unit: a unit needs a name");
  Unit unit;
  unit.name = std::move(name);
  unit.specs = std::move(parameters);
  unit.shared_ranges.resize(unit.specs.size());
  unit.requested.resize(unit.specs.size());
  for (const ParameterSpec& spec : unit.specs) {
    ZERO_CHECK(!spec.name.empty(), "add_unit({}): a parameter needs a name", unit.name);
    unit.full_names.push_back(spec.full_name.empty() ? unit.name + "." + spec.name
                                                     : spec.full_name);
    static_cast<void>(spec.count());  // throws on an invalid shape
    if (spec.slice) check_slice(unit.name, spec, unit.full_names.back(), tensor);
  }
  return unit;
}

void Unit::lay_out(int world, std::int64_t small, MomentFormat moments) {
  const std::int64_t alignment = std::max(kAlignment, moment_block(moments));
  segments.clear();
  locations.assign(specs.size(), {});
  for (const bool trainable_pass : {true, false}) {
    std::vector<ParameterSpec> chosen;
    std::vector<int> members;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].trainable != trainable_pass) continue;
      locations[i] = {static_cast<int>(segments.size()), static_cast<int>(members.size())};
      members.push_back(static_cast<int>(i));
      chosen.push_back(specs[i]);
    }
    if (!chosen.empty())
      segments.emplace_back(FlatLayout(chosen, world, small, alignment), members, trainable_pass);
  }
}

/// Neighbours in the layout with equal settings are updated in one call; padding between them stays
/// zero. With small formats a call ends before padding; with bf16 also with each part of a
/// parameter.
void Unit::plan_updates(const std::vector<ParameterGroup>& groups,
                        const OptimizerConfig& optimizer) {
  Segment* segment = trainable();
  if (segment == nullptr) return;
  std::vector<Placement> placements = segment->layout.placements();
  std::ranges::stable_sort(placements, {}, &Placement::begin);
  std::vector<UpdateRun>& runs = segment->runs;
  const MomentFormat format = optimizer.moments;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const std::int64_t begin = placements[i].begin;
    const std::int64_t next =
        i + 1 < placements.size() ? placements[i + 1].begin : segment->layout.padded();
    const std::int64_t end = format == MomentFormat::fp32 ? next : placements[i].range().end();
    const FlatRange own = FlatRange{begin, end - begin}.within(segment->extent());
    if (own.count == 0) continue;
    const int parameter = segment->parameter(placements[i]);
    const GroupSettings settings =
        settings_for(groups, full_name(parameter), optimizer.weight_decay);
    const std::int64_t at = own.begin - segment->own_begin;
    if (format == MomentFormat::bf16) {
      for (UpdateRun run : named_runs(spec(parameter), hash_text(full_name(parameter), 0),
                                      {own.begin - begin, own.count})) {
        run.begin += at;
        run.learning_rate_scale = settings.learning_rate_scale;
        run.weight_decay = settings.weight_decay;
        runs.push_back(run);
      }
    } else if (!runs.empty() && runs.back().learning_rate_scale == settings.learning_rate_scale &&
               runs.back().weight_decay == settings.weight_decay &&
               (format == MomentFormat::fp32 || runs.back().begin + runs.back().count == at)) {
      runs.back().count = at + own.count - runs.back().begin;
    } else {
      runs.push_back({at, own.count, settings.learning_rate_scale, settings.weight_decay, {}});
    }
  }
}

void Unit::initialise(const Segment& segment, std::int64_t begin, const View& masters,
                      const View& copy, Device& device, std::uint64_t seed) const {
  for (const Placement& placement : segment.layout.placements()) {
    const int parameter = segment.parameter(placement);
    const FlatRange own = placement.range().within({segment.own_begin + begin, masters.count()});
    if (own.count == 0) continue;
    const std::int64_t at = own.begin - segment.own_begin - begin;
    const View values = masters.slice(at, own.count);
    device.kernels().generate(
        device.compute(), values,
        [first = own.begin - placement.begin, &name = full_name(parameter), seed,
         &spec = spec(parameter)](std::int64_t from, std::span<float> out) {
          zero::initialise(spec, seed, name, first + from, out);
        });
    if (!copy.empty())
      device.kernels().convert(device.compute(), values, copy.slice(at, own.count));
  }
}

/// They have no master values, so theirs pass through scratch memory.
void Unit::initialise_frozen(StateAccess& access, Device& device, std::uint64_t seed) const {
  constexpr std::int64_t kScratch = 1 << 16;
  for (const Segment& segment : segments) {
    if (segment.trainable) continue;
    const Buffer scratch =
        device.allocate(kScratch, DType::fp32, MemoryClass::staging, "initial values");
    for (std::int64_t begin = 0; begin < segment.own.count(); begin += kScratch) {
      const std::int64_t count = std::min(kScratch, segment.own.count() - begin);
      const View values = scratch.slice(0, count);
      const View own = segment.own.slice(begin, count);
      if (!segment.shard_away) {
        initialise(segment, begin, values, own, device, seed);
        continue;
      }
      device.kernels().zero(device.compute(), values);  // padding
      initialise(segment, begin, values, View(), device, seed);
      if (!device.has_memory()) continue;
      access.memory().read(values, [&](std::int64_t at, const View& piece) {
        access.set(own.slice(at, piece.count()), piece);
      });
    }
    device.compute().synchronize();
  }
}

const Unit::Location& Unit::location(int parameter) const {
  ZERO_CHECK(parameter >= 0 && parameter < static_cast<int>(locations.size()),
             "unit \"{}\" has no parameter {}; it has {}", name, parameter, locations.size());
  return locations[static_cast<std::size_t>(parameter)];
}

const Placement& Unit::placement(int parameter) const {
  const Location& at = location(parameter);
  return segments[static_cast<std::size_t>(at.segment)]
      .layout.placements()[static_cast<std::size_t>(at.placement)];
}

const Segment& Unit::segment_of(int parameter) const {
  return segments[static_cast<std::size_t>(location(parameter).segment)];
}

int Unit::find(std::string_view parameter) const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == parameter || full_names[i] == parameter) return static_cast<int>(i);
    names.emplace_back(specs[i].name);
  }
  fail("unit \"{}\" has no parameter \"{}\"; it has {}", name, parameter, fmt::join(names, ", "));
}

Segment* Unit::trainable() {
  return !segments.empty() && segments.front().trainable ? &segments.front() : nullptr;
}
const Segment* Unit::trainable() const {
  return !segments.empty() && segments.front().trainable ? &segments.front() : nullptr;
}

}  // namespace zero
