// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/consecutive.h"
#include "collectives/backends.h"

namespace zero {
namespace {

std::array<int, kAxes> places_of(int rank, const MeshShape& shape) {
  std::array<int, kAxes> places{};
  for (const Axis axis : kAllAxes | std::views::reverse) {
    places[static_cast<std::size_t>(axis)] = rank % shape.size(axis);
    rank /= shape.size(axis);
  }
  return places;
}

/// The ranks that differ from the one at `places` only along `axes`, in rank order.
std::vector<int> ranks_along(const std::array<bool, kAxes>& axes, const MeshShape& shape,
                             const std::array<int, kAxes>& places) {
  std::vector<int> ranks{0};
  for (const Axis axis : kAllAxes) {
    const auto at = static_cast<std::size_t>(axis);
    const int size = shape.size(axis);
    const int from = axes[at] ? 0 : places[at];
    const int to = axes[at] ? size : from + 1;
    std::vector<int> longer;
    longer.reserve(ranks.size() * static_cast<std::size_t>(to - from));
    for (const int rank : ranks) {
      for (int place = from; place < to; ++place) longer.push_back(rank * size + place);
    }
    ranks = std::move(longer);
  }
  return ranks;
}

}  // namespace

Mesh::Mesh(Communicator& world, const MeshShape& shape)
    : shape_(shape.resolved(world.size())),
      index_(places_of(world.rank(), shape_)),
      world_(world),
      replicate_(group({true, false, false})),
      shard_(group({false, true, false})),
      tensor_(group({false, false, true})),
      data_(group({true, true, false})),
      replica_group_(group({false, true, true})) {}

// Splits end before the communicators they were split from.
Mesh::~Mesh() {
  while (!owned_.empty()) owned_.pop_back();
}

Communicator& Mesh::group(std::array<bool, kAxes> axes) {
  Part part;
  for (const Axis axis : kAllAxes) {
    bool& member = axes[static_cast<std::size_t>(axis)];
    member = member && size(axis) > 1;
    // The index along the axes left out tells groups apart.
    int& place = member ? part.rank : part.number;
    place = place * size(axis) + index(axis);
    if (member) part.ranks *= size(axis);
  }
  const auto known =
      std::ranges::find_if(groups_, [&](const AxisGroup& other) { return other.axes == axes; });
  if (known != groups_.end()) return *known->communicator;
  if (part.ranks == world_.size()) {
    groups_.push_back({axes, &world_});
    return world_;
  }
  owned_.push_back(planning::part(world_, part.rank, part.ranks,
                                  [&] { return ranks_along(axes, shape_, index_); }));
  if (!owned_.back()) {
    owned_.back() = part.ranks == 1 ? local::single() : world_.split(part.number, part.rank);
  }
  groups_.push_back({axes, owned_.back().get()});
  return *owned_.back();
}

std::vector<Mesh::Group> Mesh::groups() const {
  const auto group = [this](const char* name, const Communicator& communicator,
                            const std::array<bool, kAxes>& axes) {
    return Group{name, &communicator, ranks_along(axes, shape_, index_)};
  };
  return {group("world", world_, {true, true, true}),
          group("shard", shard_, {false, true, false}),
          group("replicate", replicate_, {true, false, false}),
          group("tensor", tensor_, {false, false, true}),
          group("data", data_, {true, true, false}),
          group("replica group", replica_group_, {false, true, true})};
}

Communicator& Mesh::split(Axis axis, const Part& part) {
  std::array<bool, kAxes> axes{};
  axes[static_cast<std::size_t>(axis)] = true;
  Communicator& whole = group(axes);
  // A plan knows no other rank's part: it takes them to be adjacent.
  owned_.push_back(planning::part(whole, part.rank, part.ranks, [&] {
    return consecutive(whole.rank() - part.rank, part.ranks);
  }));
  if (!owned_.back()) owned_.back() = whole.split(part.number, part.rank);
  return *owned_.back();
}

}  // namespace zero
