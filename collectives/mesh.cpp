// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh.h"

#include <algorithm>

#include "base/error.h"
#include "collectives/backends.h"
#include "collectives/local/communicator.h"

namespace zero {
namespace {

constexpr std::array kAllAxes = {Axis::replicate, Axis::shard, Axis::tensor};

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::replicate:
      return "replicate";
    case Axis::shard:
      return "shard";
    case Axis::tensor:
      return "tensor";
  }
  return "unknown axis";
}

int MeshShape::size(Axis axis) const {
  return axis == Axis::replicate ? replicate : axis == Axis::shard ? shard : tensor;
}

MeshShape MeshShape::resolved(int world) const {
  std::int64_t product = 1;
  int open = 0;
  for (const Axis axis : kAllAxes) {
    const int ranks = size(axis);
    ZERO_CHECK(ranks >= 1 || ranks == -1,
               "mesh.{} is {}; expected a number of ranks, or -1 for what the other axes leave",
               name_of(axis), ranks);
    ranks == -1 ? static_cast<void>(++open) : static_cast<void>(product *= ranks);
  }
  ZERO_CHECK(open <= 1,
             "mesh is {} x {} x {} (replicate x shard x tensor); at most one axis can be -1",
             replicate, shard, tensor);
  ZERO_CHECK(
      product <= world && world % product == 0 && (open == 1 || product == world),
      "mesh is {} x {} x {} (replicate x shard x tensor), which does not make the {} rank(s) "
      "of this job; {}",
      replicate, shard, tensor, world,
      open == 1 ? fmt::format("the axes that are given must divide {}", world)
                : fmt::format("start {} ranks, or set one axis to -1", product));
  MeshShape whole = *this;
  for (int* axis : {&whole.replicate, &whole.shard, &whole.tensor}) {
    if (*axis == -1) *axis = static_cast<int>(world / product);
  }
  return whole;
}

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
