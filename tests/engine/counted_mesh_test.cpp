// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/counted_mesh.h"

#include <gtest/gtest.h>

#include "collectives/backends.h"

namespace zero {
namespace {

/// Ten fp32 values, summed along `communicator`.
void reduce_ten(Communicator& communicator) {
  const auto device = planning::open();
  const Buffer values = device->allocate(10, DType::fp32, MemoryClass::other, "x");
  communicator.all_reduce(values.view(), ReduceOp::sum, device->communication(), {"x"});
}

TEST(CountedMesh, TwoOnOneMeshDoNotMixTheirTraffic) {
  const auto world = planning::communicator(5, 8, BackendKind::mpi);
  Mesh mesh(*world, {2, 2, 2});
  CountedMesh one(mesh);
  CountedMesh other(mesh);
  reduce_ten(one.axis(Axis::shard));
  reduce_ten(one.data());
  reduce_ten(other.axis(Axis::shard));
  reduce_ten(*world);
  EXPECT_EQ(one.traffic().of(Axis::shard).total(), 40);
  EXPECT_EQ(one.traffic().across.total(), 60);
  EXPECT_EQ(other.traffic().total().total(), 40);
  one.clear();
  EXPECT_EQ(one.traffic().total().total(), 0);
  EXPECT_EQ(other.traffic().total().total(), 40);
}

TEST(CountedMesh, AnAxisThatIsTheWholeWorldIsBookedAsTheAxis) {
  const auto world = planning::communicator(1, 2, BackendKind::mpi);
  CountedMesh mesh(*world);
  reduce_ten(mesh.world());
  reduce_ten(mesh.axis(Axis::shard));
  EXPECT_EQ(mesh.traffic().of(Axis::shard).total(), 80);
  EXPECT_EQ(mesh.traffic().across.total(), 0);
}

TEST(CountedMesh, APartOfAnAxisIsBookedAsTheAxis) {
  const auto world = planning::communicator(0, 4, BackendKind::mpi);
  Mesh whole(*world, {1, 1, 4});
  CountedMesh mesh(whole);
  Communicator& part = mesh.split(Axis::tensor, {0, 0, 2});
  EXPECT_EQ(part.size(), 2);
  reduce_ten(part);
  EXPECT_EQ(mesh.traffic().of(Axis::tensor).total(), 40);
  MeshTraffic traffic;
  EXPECT_EQ(&mesh.booked(traffic, part), &traffic.axes[static_cast<std::size_t>(Axis::tensor)]);
}

}  // namespace
}  // namespace zero
