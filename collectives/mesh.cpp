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
    : shape_(shape.resolved(world.size())), base_(&world) {
  int rest = world.rank();
  for (const Axis axis : {Axis::tensor, Axis::shard, Axis::replicate}) {
    index_[static_cast<std::size_t>(axis)] = rest % size(axis);
    rest /= size(axis);
  }
  world_ = part({true, true, true}, decorate);
  replicate_ = part({true, false, false}, decorate);
  shard_ = part({false, true, false}, decorate);
  tensor_ = part({false, false, true}, decorate);
  data_ = part({true, true, false}, decorate);
  replica_ = part({false, true, true}, decorate);
}

Mesh::~Mesh() {
  while (!owned_.empty()) owned_.pop_back();
}

Communicator* Mesh::part(std::array<bool, kAxes> axes, const Decorate& decorate) {
  int color = 0;  // the place on the axes that are left out
  int rank = 0;   // on those that are not
  int ranks = 1;
  for (const Axis axis : kAllAxes) {
    bool& member = axes[static_cast<std::size_t>(axis)];
    member = member && size(axis) > 1;
    int& place = member ? rank : color;
    place = place * size(axis) + index(axis);
    if (member) ranks *= size(axis);
  }
  const auto known =
      std::ranges::find_if(parts_, [&](const Part& other) { return other.axes == axes; });
  if (known != parts_.end()) return known->communicator;
  Communicator* communicator = base_;
  if (ranks < base_->size()) {
    owned_.push_back(planning::part(*base_, rank, ranks));
    if (!owned_.back()) owned_.back() = ranks == 1 ? local::single() : base_->split(color, rank);
    communicator = owned_.back().get();
  }
  if (decorate) {
    owned_.push_back(decorate(*communicator));
    communicator = owned_.back().get();
  }
  parts_.push_back({axes, communicator});
  return communicator;
}

}  // namespace zero
