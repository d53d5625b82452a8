// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh.h"

#include <algorithm>

#include "collectives/backends.h"
#include "collectives/local/communicator.h"

namespace zero {
namespace {

constexpr std::array kAllAxes = {Axis::replicate, Axis::shard, Axis::tensor};

}  // namespace

Mesh::Mesh(Communicator& world, const MeshShape& shape, const Decorate& decorate)
    : shape_(shape.resolved(world.size())), base_(&world), decorate_(decorate) {
  int rest = world.rank();
  for (const Axis axis : {Axis::tensor, Axis::shard, Axis::replicate}) {
    index_[static_cast<std::size_t>(axis)] = rest % size(axis);
    rest /= size(axis);
  }
  world_ = group({true, true, true}).outer;
  replicate_ = group({true, false, false}).outer;
  shard_ = group({false, true, false}).outer;
  tensor_ = group({false, false, true}).outer;
  data_ = group({true, true, false}).outer;
  replica_ = group({false, true, true}).outer;
}

Mesh::~Mesh() {
  while (!owned_.empty()) owned_.pop_back();
}

const Mesh::Group& Mesh::group(std::array<bool, kAxes> axes) {
  Part part;
  for (const Axis axis : kAllAxes) {
    bool& member = axes[static_cast<std::size_t>(axis)];
    member = member && size(axis) > 1;
    // The place on the axes that are left out tells groups apart.
    int& place = member ? part.rank : part.number;
    place = place * size(axis) + index(axis);
    if (member) part.ranks *= size(axis);
  }
  const auto known =
      std::ranges::find_if(groups_, [&](const Group& other) { return other.axes == axes; });
  if (known != groups_.end()) return *known;
  Communicator* inner = base_;
  if (part.ranks < base_->size()) {
    owned_.push_back(planning::part(*base_, part.rank, part.ranks));
    if (!owned_.back()) {
      owned_.back() = part.ranks == 1 ? local::single() : base_->split(part.number, part.rank);
    }
    inner = owned_.back().get();
  }
  groups_.push_back({axes, inner, decorated(*inner)});
  return groups_.back();
}

Communicator* Mesh::decorated(Communicator& inner) {
  if (!decorate_) return &inner;
  owned_.push_back(decorate_(inner));
  return owned_.back().get();
}

Communicator& Mesh::split(Axis axis, const Part& part) {
  std::array<bool, kAxes> axes{};
  axes[static_cast<std::size_t>(axis)] = true;
  Communicator& whole = *group(axes).inner;
  owned_.push_back(planning::part(whole, part.rank, part.ranks));
  if (!owned_.back()) owned_.back() = whole.split(part.number, part.rank);
  return *decorated(*owned_.back());
}

}  // namespace zero
