// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh.h"

#include <gtest/gtest.h>

#include "base/consecutive.h"
#include "collectives/backends.h"
#include "collectives/store.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

std::vector<MeshShape> factorisations(int world) {
  std::vector<MeshShape> shapes;
  for (int replicate = 1; replicate <= world; ++replicate) {
    for (int shard = 1; shard <= world; ++shard) {
      for (int tensor = 1; tensor <= world; ++tensor) {
        if (replicate * shard * tensor == world) shapes.push_back({replicate, shard, tensor});
      }
    }
  }
  return shapes;
}

// The world's ranks of a communicator, in its order.
std::vector<std::int64_t> members(Communicator& group, int world_rank) {
  const auto device = cpu::open();
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(group.size()));
  std::int64_t mine = world_rank;
  group.all_gather(View::of(std::span(&mine, 1)),
                   Slices::even(View::of(std::span(ranks)), group.size()), device->compute(),
                   {"members", {}});
  device->compute().synchronize();
  return ranks;
}

TEST(Mesh, AxesAndTheirProductsHoldTheRanksThatDifferThereOnly) {
  for (const int world : {1, 6, 8}) {
    for (const MeshShape& shape : factorisations(world)) {
      local::run(world, [&](Communicator& all) {
        Mesh mesh(all, shape);
        const int me = all.rank();
        const auto [r, s, t] = std::tuple(mesh.index(Axis::replicate), mesh.index(Axis::shard),
                                          mesh.index(Axis::tensor));
        EXPECT_EQ((r * shape.shard + s) * shape.tensor + t, me);
        // Which ranks a group must hold, from the definition.
        const auto expected = [&](bool replicate, bool shard, bool tensor) {
          std::vector<std::int64_t> ranks;
          for (int other = 0; other < world; ++other) {
            const int tensor_of = other % shape.tensor;
            const int shard_of = other / shape.tensor % shape.shard;
            const int replicate_of = other / shape.tensor / shape.shard;
            if ((replicate || replicate_of == r) && (shard || shard_of == s) &&
                (tensor || tensor_of == t)) {
              ranks.push_back(other);
            }
          }
          return ranks;
        };
        EXPECT_EQ(members(mesh.world(), me), expected(true, true, true));
        EXPECT_EQ(members(mesh.replicate(), me), expected(true, false, false));
        EXPECT_EQ(members(mesh.shard(), me), expected(false, true, false));
        EXPECT_EQ(members(mesh.tensor(), me), expected(false, false, true));
        EXPECT_EQ(members(mesh.data(), me), expected(true, true, false));
        EXPECT_EQ(members(mesh.replica_group(), me), expected(false, true, true));
      });
    }
  }
}

TEST(Mesh, WhatIsTheWholeWorldIsTheWorldItself) {
  local::run(4, [](Communicator& all) {
    Mesh mesh(all, {});
    EXPECT_EQ(&mesh.world(), &all);
    EXPECT_EQ(&mesh.shard(), &all);
    EXPECT_EQ(&mesh.data(), &all);
    EXPECT_EQ(&mesh.replica_group(), &all);
    EXPECT_EQ(&mesh.tensor(), &mesh.replicate());
    EXPECT_EQ(mesh.tensor().size(), 1);
  });
}

TEST(Mesh, AnAxisIsSplitIntoPartsOfItsOrder) {
  local::run(10, [](Communicator& all) {
    Mesh mesh(all, {1, 2, 5});
    const int me = mesh.index(Axis::tensor);
    // Ranks 0 to 2 and 3 to 4 of each tensor group.
    Communicator& part =
        mesh.split(Axis::tensor, {me < 3 ? 0 : 1, me < 3 ? me : me - 3, me < 3 ? 3 : 2});
    const int first = all.rank() - part.rank();
    EXPECT_EQ(members(part, all.rank()), consecutive(std::int64_t{first}, me < 3 ? 3 : 2));
  });
}

TEST(Mesh, IsPlannedWithoutPeers) {
  const auto all = planning::communicator(13, 24, BackendKind::mpi);
  Mesh mesh(*all, {2, -1, 3});
  EXPECT_EQ(mesh.shape().shard, 4);
  EXPECT_EQ(mesh.index(Axis::replicate), 1);
  EXPECT_EQ(mesh.index(Axis::shard), 0);
  EXPECT_EQ(mesh.index(Axis::tensor), 1);
  EXPECT_EQ(mesh.data().size(), 8);
  EXPECT_EQ(mesh.data().rank(), 4);
  EXPECT_EQ(mesh.shard().backend(), BackendKind::planning);
  EXPECT_EQ(mesh.split(Axis::tensor, {0, 1, 2}).size(), 2);
}

TEST(MeshShape, FillsOneAxisWithWhatIsLeft) {
  EXPECT_EQ((MeshShape{2, -1, 2}.resolved(12).shard), 3);
  EXPECT_EQ((MeshShape{-1, 3, 2}.resolved(12).replicate), 2);
  EXPECT_EQ((MeshShape{1, 1, -1}.resolved(7).tensor), 7);
  EXPECT_EQ((MeshShape{2, 4, 1}.ranks()), 8);
  EXPECT_EQ((MeshShape{2, 4, 1}.text()), "2 x 4 x 1");
}

TEST(MeshShape, RefusesWhatDoesNotMakeTheWorld) {
  EXPECT_EQ(error_of([] {
              static_cast<void>(MeshShape{1, -1, 3}.resolved(8));
            }),
            "mesh is 1 x -1 x 3 (replicate x shard x tensor), which does not make the 8 rank(s) of "
            "this job; the axes that are given must divide 8");
  EXPECT_EQ(error_of([] {
              static_cast<void>(MeshShape{2, 2, 1}.resolved(8));
            }),
            "mesh is 2 x 2 x 1 (replicate x shard x tensor), which does not make the 8 rank(s) of "
            "this job; start 4 ranks, or set one axis to -1");
  EXPECT_EQ(error_of([] {
              static_cast<void>(MeshShape{-1, -1, 2}.resolved(8));
            }),
            "mesh is -1 x -1 x 2 (replicate x shard x tensor); at most one axis can be -1");
  EXPECT_EQ(error_of([] {
              static_cast<void>(MeshShape{1, 0, 2}.resolved(8));
            }),
            "mesh.shard is 0; expected a number of ranks, or -1 for what the other axes leave");
}

}  // namespace
}  // namespace zero::test
