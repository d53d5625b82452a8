// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "collectives/collective_backend.h"
#include "collectives/host_values.h"
#include "collectives/in_process_store.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

TEST(Slices, CutEvenlyAndStrided) {
  std::vector<float> values(12);
  const View view = View::of(std::span(values));
  const Slices even = Slices::even(view, 3);
  EXPECT_EQ(even.world(), 3);
  EXPECT_EQ(even.total(), 12);
  EXPECT_EQ(even.of(2).data(), &values[8]);
  EXPECT_EQ(even.of(2).count(), 4);
  const Slices strided = Slices::strided(view, 3, 1, 2);
  EXPECT_EQ(strided.total(), 6);
  EXPECT_EQ(strided.of(1).data(), &values[5]);
  EXPECT_EQ(Slices::even(View(), 5).total(), 0);
}

TEST(Slices, RefuseWhatDoesNotDivideOrLiesOutside) {
  std::vector<float> values(12);
  const View view = View::of(std::span(values));
  EXPECT_EQ(error_of([&] { static_cast<void>(Slices::even(view, 5)); }),
            "a buffer of 12 elements cannot be cut into 5 equal slices; pad it in the layout");
  EXPECT_EQ(error_of([&] { static_cast<void>(Slices::strided(view, 5, 0, 1)); }),
            "a buffer of 12 elements cannot be cut into 5 equal shards; pad it in the layout");
  EXPECT_EQ(error_of([&] { static_cast<void>(Slices::strided(view, 3, 3, 2)); }),
            "slice [3, 5) is outside a shard of 4 elements");
}

TEST(Workspace, IsAReceiveSlicePerPeerOverMpiAndNothingAmongThreads) {
  Slices slices;
  slices.ranges = {{0, 10}, {10, 30}, {40, 0}};
  slices.buffer = View(nullptr, 100, DType::fp32, nullptr);
  EXPECT_EQ(reduce_scatter_workspace(BackendKind::mpi, slices), 60);
  EXPECT_EQ(reduce_scatter_workspace(BackendKind::local, slices), 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(planning::communicator(rank, 3, BackendKind::mpi)->reduce_scatter_workspace(slices),
              60);
    EXPECT_EQ(planning::communicator(rank, 3, BackendKind::local)->reduce_scatter_workspace(slices),
              0);
  }
  EXPECT_EQ(reduce_scatter_workspace(BackendKind::host, slices), 0);
  EXPECT_EQ(reduce_scatter_workspace(BackendKind::store, slices), 0) << "refuses to reduce";
  EXPECT_EQ(reduce_scatter_workspace(BackendKind::nccl, slices), 60);
  EXPECT_EQ(reduce_scatter_workspace(BackendKind::nccl_fast, slices), 30);
}

TEST(PlanningCommunicator, IsARankWithoutPeers) {
  const auto comm = planning::communicator(5, 1000, BackendKind::mpi);
  EXPECT_EQ(comm->rank(), 5);
  EXPECT_EQ(comm->size(), 1000);
  EXPECT_EQ(comm->local_rank(), 5);
  EXPECT_EQ(comm->local_size(), 1000);
  EXPECT_EQ(comm->backend(), BackendKind::planning);
  const auto device = planning::open();
  EXPECT_EQ(all_gather_texts(*comm, *device, "plan", "hash"),
            std::vector<std::string>(1000, "plan"));
  EXPECT_EQ(comm->split(-1, 0), nullptr);
  EXPECT_EQ(error_of([&] { static_cast<void>(comm->split(0, 0)); }),
            "[rank 5] split: a planning communicator of 1000 ranks does not know the colors of its "
            "peers; make one of the group's size with planning::part");
  EXPECT_EQ(planning::communicator(0, 1, BackendKind::local)->split(0, 0)->size(), 1);
  EXPECT_EQ(error_of([] { static_cast<void>(planning::communicator(3, 3, BackendKind::mpi)); }),
            "planning: rank 3 is outside a world of 3 ranks");
  EXPECT_EQ(
      error_of([] { static_cast<void>(planning::communicator(0, 3, BackendKind::planning)); }),
      "a plan needs the backend that its run will have; planning is none");
}

TEST(PlanningCommunicator, OfGpusTakesWhatNcclsTake) {
  const auto device = planning::open(1, MemorySpace::device, DeviceKind::cuda);
  const auto held = [&](const char* label) {
    const auto labels = device->ledger().snapshot().labels;
    const auto found = labels.find(label);
    return found == labels.end() ? 0 : found->second;
  };
  constexpr std::int64_t kMiB = 1 << 20;
  const std::int64_t opened = device->device_bytes().arenas[5];
  const auto world = planning::communicator(1, 4, BackendKind::nccl, device.get());
  const auto pair = planning::part(*world, 1, 2);
  const auto alone = planning::part(*world, 0, 1);
  EXPECT_EQ(held("communication/scratch of NCCL's ranks"), 16 * kMiB);
  EXPECT_EQ(device->device_bytes().arenas[5], opened + 16 * kMiB);
  const Buffer small = pair->allocate(*device, kMiB / 4 - 1, DType::u8, MemoryClass::other, "a");
  EXPECT_EQ(device->device_bytes().adopted, 0);
  const Buffer large = pair->allocate(*device, kMiB + 1, DType::bf16, MemoryClass::other, "b");
  EXPECT_EQ(device->device_bytes().adopted, 4 * kMiB);
  EXPECT_EQ(held("other/b"), 2 * kMiB + 2);
  const Buffer own = alone->allocate(*device, 3 * kMiB, DType::u8, MemoryClass::other, "c");
  EXPECT_EQ(device->device_bytes().adopted, 4 * kMiB);
  const auto threads = planning::communicator(1, 4, BackendKind::local, device.get());
  const Buffer plain = threads->allocate(*device, 2 * kMiB, DType::u8, MemoryClass::other, "d");
  EXPECT_EQ(device->device_bytes().adopted, 4 * kMiB);
  EXPECT_EQ(device->device_bytes().arenas[7], (3 + 2) * kMiB + kMiB / 4);
}

TEST(World, OfAProcessWithoutALauncherIsOneRank) {
  if (!mpi::available()) GTEST_SKIP() << "built without MPI";
  const auto comm = mpi::world(nullptr, nullptr);
  EXPECT_EQ(comm->size(), 1);
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->local_size(), 1);
}

}  // namespace
}  // namespace zero::test
