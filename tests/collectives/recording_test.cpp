// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/recording.h"

#include <gtest/gtest.h>

#include "tests/collectives/messages.h"

namespace zero::test {
namespace {

TEST(Recording, NotesEveryCollectiveInOrderWithItsBytes) {
  const auto device = planning::open();
  const auto inner = planning::communicator(1, 4, "local");
  RecordingCommunicator comm(*inner, RecordingCommunicator::Keep::records);
  Stream& stream = device->communication();
  const Buffer buffer = device->allocate(400, DType::bf16, MemoryClass::other, "x");
  const Buffer other = device->allocate(400, DType::bf16, MemoryClass::other, "y");
  const Buffer values = device->allocate(34, DType::i64, MemoryClass::other, "limbs");
  const Slices full = Slices::even(buffer.view(), 4);

  comm.all_gather(full.of(1), full, stream, {"h.0"});
  comm.reduce_scatter(full, {{}, full.of(1), nullptr}, {}, stream, {"h.1", Operation::all_reduce});
  comm.all_reduce(values.view(), ReduceOp::sum, stream, {"gradient norm"});
  comm.all_to_all(full, Slices::even(other.view(), 4), stream, {"tokens"});
  comm.broadcast(values.view(), 0, stream, {"seed"});
  comm.barrier(stream, {"end"});

  using enum Operation;
  const std::vector<CollectiveRecord> expected{
      {all_gather, all_gather, "h.0", DType::bf16, 800, 600},
      {reduce_scatter, all_reduce, "h.1", DType::bf16, 800, 600},
      {all_reduce, all_reduce, "gradient norm", DType::i64, 272, 408},
      {all_to_all, all_to_all, "tokens", DType::bf16, 800, 600},
      {broadcast, broadcast, "seed", DType::i64, 272, 204},
      {barrier, barrier, "end", DType::u8, 0, 0}};
  EXPECT_EQ(comm.records(), expected);
  EXPECT_EQ(comm.traffic().of(all_gather), 600);
  EXPECT_EQ(comm.traffic().of(reduce_scatter), 0);
  EXPECT_EQ(comm.traffic().of(all_reduce), 1008);
  EXPECT_EQ(comm.traffic().total(), 600 + 1008 + 600 + 204);

  const TrafficCounter before = comm.traffic();
  comm.all_gather(full.of(1), full, stream, {"h.2"});
  EXPECT_EQ(comm.traffic().since(before).total(), 600);
  comm.clear();
  EXPECT_TRUE(comm.records().empty());
  EXPECT_EQ(comm.traffic().total(), 0);
}

TEST(Recording, CountsWithoutKeepingRecords) {
  const auto device = planning::open();
  const auto inner = planning::communicator(0, 2, "mpi");
  RecordingCommunicator comm(*inner, RecordingCommunicator::Keep::counts);
  const Buffer values = device->allocate(10, DType::fp32, MemoryClass::other, "x");
  comm.all_reduce(values.view(), ReduceOp::sum, device->communication(), {"x"});
  EXPECT_TRUE(comm.records().empty());
  EXPECT_EQ(comm.traffic().of(Operation::all_reduce), 40);
}

TEST(Recording, DoesNotCountWhatWasRefused) {
  const auto device = planning::open();
  const auto inner = planning::communicator(0, 2, "mpi");
  RecordingCommunicator comm(*inner, RecordingCommunicator::Keep::records);
  EXPECT_NE(message_of([&] { comm.broadcast({}, 7, device->communication(), {"x"}); }), "no error");
  EXPECT_TRUE(comm.records().empty());
}

TEST(Recording, PassesRealCallsOnToItsInner) {
  local::run(3, [](Communicator& inner) {
    RecordingCommunicator comm(inner, RecordingCommunicator::Keep::records);
    const auto device = cpu::open();
    std::vector<std::int32_t> values(3, -1);
    const Slices full = Slices::even(View::of(std::span(values)), 3);
    values[static_cast<std::size_t>(comm.rank())] = comm.rank();
    comm.all_gather(full.of(comm.rank()), full, device->communication(), {"ranks"});
    device->communication().synchronize();
    EXPECT_EQ(values, (std::vector<std::int32_t>{0, 1, 2}));
    EXPECT_EQ(comm.backend(), "local");
    EXPECT_EQ(comm.local_size(), 3);
    EXPECT_EQ(comm.local_rank(), comm.rank());
    EXPECT_EQ(&comm.store(), &inner.store());
    EXPECT_EQ(comm.split(0, 0)->size(), 3);
    EXPECT_EQ(comm.reduce_scatter_workspace(full), 0);
    EXPECT_EQ(comm.allocate(*device, 5, DType::i64, MemoryClass::other, "x").view().count(), 5);
  });
}

TEST(SentBytes, FollowTheAlgorithm) {
  using enum Operation;
  for (const Operation operation : {all_gather, reduce_scatter, all_to_all, broadcast}) {
    EXPECT_EQ(Communicator::sent_bytes(operation, 800, 8), 700) << name_of(operation);
    EXPECT_EQ(Communicator::sent_bytes(operation, 800, 1), 0) << name_of(operation);
  }
  EXPECT_EQ(Communicator::sent_bytes(all_reduce, 800, 8), 1400);
  EXPECT_EQ(Communicator::sent_bytes(barrier, 0, 8), 0);
  EXPECT_EQ(message_of([] { static_cast<void>(Communicator::sent_bytes(all_gather, 1, 0)); }),
            "a world of 0 ranks; expected at least 1");
}

}  // namespace
}  // namespace zero::test
