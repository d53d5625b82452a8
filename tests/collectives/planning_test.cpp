// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "collectives/collective_backend.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "collectives/store.h"
#include "device/planning/clock.h"
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
  for (const BackendKind kind : {BackendKind::nccl, BackendKind::nccl_fast}) {
    const auto plan = planning::communicator(1, 3, kind);
    EXPECT_EQ(plan->backend(), BackendKind::planning);
    EXPECT_EQ(plan->run_backend(), kind);
    EXPECT_EQ(sums_on_the_way(plan->run_backend()), kind == BackendKind::nccl_fast);
  }
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

/// Every collective takes a second; keeps what was asked.
class OneSecond final : public planning::CollectiveTimes {
 public:
  planning::Span span(const planning::PlannedCollective& collective, double begin) override {
    operations.push_back(collective.operation);
    ranks = collective.ranks;
    total_bytes = collective.total_bytes;
    own_bytes = collective.own_bytes;
    shared = collective.to_shared_memory;
    return {begin, begin + 1, 1};
  }
  std::vector<Operation> operations;
  std::vector<int> ranks;
  std::int64_t total_bytes = 0;
  std::int64_t own_bytes = 0;
  bool shared = false;
};
/// Other work takes no time.
class NoTime final : public planning::WorkTimes {
  double seconds(Lane, std::string_view, std::int64_t) override { return 0; }
};

TEST(PlanningCommunicator, TakesTimeOnStreamsWithAClock) {
  NoTime work;
  OneSecond times;
  const auto device = planning::open({.times = &work, .inline_compute = true}, 1, MemorySpace::host,
                                     DeviceKind::cpu);
  const auto all = planning::communicator(13, 24, BackendKind::host, device.get(), &times);
  Mesh mesh(*all, {2, 4, 3});
  Stream& stream = device->communication();
  const Mark begin = stream.mark();
  const View full(reinterpret_cast<void*>(1 << 20), 64, DType::bf16, device.get());
  const Slices slices = Slices::even(full, 4);
  mesh.shard().all_gather(slices.of(mesh.shard().rank()), slices, stream, {"h.0", {}});
  EXPECT_EQ(times.ranks, (std::vector<int>{13, 16, 19, 22}));
  EXPECT_EQ(times.total_bytes, 128);
  EXPECT_EQ(times.own_bytes, 0) << "in place";
  EXPECT_FALSE(times.shared);
  mesh.tensor().barrier(stream, {"h.0", {}});
  EXPECT_EQ(times.ranks, (std::vector<int>{12, 13, 14}));
  mesh.replicate().barrier(stream, {"h.0", {}});
  EXPECT_EQ(times.ranks, (std::vector<int>{1, 13}));
  mesh.split(Axis::tensor, {0, 1, 2}).barrier(stream, {"h.0", {}});
  EXPECT_EQ(times.ranks, (std::vector<int>{12, 13}));
  device->compute().wait(stream.record());
  EXPECT_EQ(device->compute().waited_seconds(), 4);
  EXPECT_EQ(stream.mark().seconds_since(begin), 4);
  EXPECT_EQ(times.operations.size(), 4);

  const SharedBuffer window =
      mesh.shard().allocate_shared(*device, 64, DType::bf16, MemoryClass::gathered, "windows");
  const Slices part = Slices::even(window.buffer.slice(32, 16), 4);
  mesh.shard().all_gather(slices.of(0).slice(0, 4), part, stream, {"h.1", {}});
  EXPECT_TRUE(times.shared);
  EXPECT_EQ(times.own_bytes, 8);
}

TEST(PlanningCommunicator, RefusesToTimeAStreamWithoutAClock) {
  OneSecond times;
  const auto device = planning::open();
  const auto all = planning::communicator(0, 2, BackendKind::host, device.get(), &times);
  EXPECT_EQ(error_of([&] {
              all->barrier(device->compute(), {"x", {}});
            }),
            "[rank 0] barrier: its time is asked for on a stream without a virtual clock; open the "
            "planning device with one");
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
