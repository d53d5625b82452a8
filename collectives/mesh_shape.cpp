// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh_shape.h"

#include "base/error.h"

namespace zero {

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

std::string MeshShape::text() const {
  return fmt::format("{} x {} x {}", replicate, shard, tensor);
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
  ZERO_CHECK(open <= 1, "mesh is {} (replicate x shard x tensor); at most one axis can be -1",
             text());
  ZERO_CHECK(
      product <= world && world % product == 0 && (open == 1 || product == world),
      "mesh is {} (replicate x shard x tensor), which does not make the {} rank(s) of this job; "
      "{}",
      text(), world,
      open == 1 ? fmt::format("the axes that are given must divide {}", world)
                : fmt::format("start {} ranks, or set one axis to -1", product));
  MeshShape whole = *this;
  for (int* axis : {&whole.replicate, &whole.shard, &whole.tensor}) {
    if (*axis == -1) *axis = static_cast<int>(world / product);
  }
  return whole;
}

}  // namespace zero
