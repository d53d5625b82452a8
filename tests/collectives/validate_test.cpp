// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

// Rank 3 of 5, with a layout of 5 slices of 150 and buffers to spare.
class Checks : public ::testing::Test {
 protected:
  Checks()
      : device(planning::open()),
        comm(planning::communicator(3, 5, BackendKind::mpi)),
        stream(device->communication()),
        buffer(device->allocate(750, DType::fp32, MemoryClass::other, "full")),
        other(device->allocate(4096, DType::fp32, MemoryClass::other, "other")),
        full(Slices::even(buffer.view(), 5)) {}

  View spare(std::int64_t begin, std::int64_t count) const { return other.slice(begin, count); }
  View halves(std::int64_t count) const { return other.view().reinterpret(DType::bf16, count); }

  std::string all_gather(View mine, const Slices& slices, const std::string& purpose = "h.0") {
    return error_of([&] { comm->all_gather(mine, slices, stream, {purpose}); });
  }
  std::string reduce_scatter(const Slices& slices, const ReduceEpilogue& epilogue) {
    return reduce_scatter(slices, epilogue, spare(3000, 600));
  }
  std::string reduce_scatter(const Slices& slices, const ReduceEpilogue& epilogue, View workspace) {
    return error_of([&] { comm->reduce_scatter(slices, epilogue, workspace, stream, {"h.0"}); });
  }
  static ReduceEpilogue into(View destination, std::vector<View> addends = {}) {
    return {.addends = std::move(addends), .destination = destination, .norm = nullptr};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> comm;
  Stream& stream;
  Buffer buffer;
  Buffer other;
  Slices full;
};

TEST_F(Checks, ValidCallsPass) {
  EXPECT_EQ(all_gather(full.of(3), full), "no error");
  EXPECT_EQ(all_gather(spare(0, 150), full), "no error");
  EXPECT_EQ(reduce_scatter(full, into(full.of(3))), "no error");
  EXPECT_EQ(reduce_scatter(full, into(spare(0, 150), {spare(0, 150), spare(200, 150)})),
            "no error");
}

TEST_F(Checks, AnEmptyUnitIsRefusedEverywhere) {
  const std::string rest =
      ": the tag's purpose is empty; name the unit or other purpose of the collective";
  EXPECT_EQ(all_gather(full.of(3), full, ""), "[rank 3] all_gather()" + rest);
  EXPECT_EQ(
      error_of([&] { comm->reduce_scatter(full, into(full.of(3)), spare(0, 600), stream, {""}); }),
      "[rank 3] reduce_scatter()" + rest);
  EXPECT_EQ(error_of([&] { comm->all_reduce(spare(0, 1), ReduceOp::sum, stream, {""}); }),
            "[rank 3] all_reduce()" + rest);
  EXPECT_EQ(error_of([&] { comm->all_to_all(full, full, stream, {""}); }),
            "[rank 3] all_to_all()" + rest);
  EXPECT_EQ(error_of([&] { comm->broadcast(spare(0, 1), 0, stream, {""}); }),
            "[rank 3] broadcast()" + rest);
  EXPECT_EQ(error_of([&] { comm->barrier(stream, {""}); }), "[rank 3] barrier()" + rest);
}

TEST_F(Checks, SlicesAreOnePerRankInsideAndApart) {
  Slices wrong = full;
  wrong.ranges.pop_back();
  EXPECT_EQ(all_gather(full.of(3), wrong),
            "[rank 3] all_gather(h.0): full has 4 slices, expected one per rank, 5");
  EXPECT_EQ(error_of([&] { static_cast<void>(comm->reduce_scatter_workspace(wrong)); }),
            "[rank 3] reduce_scatter(workspace): full has 4 slices, expected one per rank, 5");
  wrong = full;
  wrong.ranges[4].count = 151;
  EXPECT_EQ(all_gather(full.of(3), wrong),
            "[rank 3] all_gather(h.0): slice 4 of full, [600, 751), is outside its buffer of 750 "
            "elements");
  wrong = full;
  wrong.ranges[1] = {-1, 5};
  EXPECT_EQ(all_gather(full.of(3), wrong),
            "[rank 3] all_gather(h.0): slice 1 of full, [-1, 4), is outside its buffer of 750 "
            "elements");
  wrong = full;
  wrong.ranges[0] = {299, 100};
  EXPECT_EQ(all_gather(full.of(3), wrong),
            "[rank 3] all_gather(h.0): slice 1 of full, [150, 300), overlaps slice 0, [299, 399)");
}

TEST_F(Checks, AllGatherRefusesWhatDoesNotFit) {
  EXPECT_EQ(all_gather(spare(0, 768), full),
            "[rank 3] all_gather(h.0): mine has 768 elements, expected slice 3's 150; build both "
            "views from the same layout");
  EXPECT_EQ(all_gather(halves(150), full),
            "[rank 3] all_gather(h.0): mine holds bf16, full holds fp32; convert first");
  EXPECT_EQ(all_gather(buffer.slice(449, 150), full),
            "[rank 3] all_gather(h.0): mine overlaps slice 2 of full; give it its own memory");
}

TEST_F(Checks, ReduceScatterRefusesWhatDoesNotFit) {
  const std::string who = "[rank 3] reduce_scatter(h.0): ";
  EXPECT_EQ(reduce_scatter(full, into(spare(0, 768))),
            who +
                "destination has 768 elements, expected slice 3's 150; build both views from "
                "the same layout");
  const View integers(other.view().data(), 150, DType::i32, nullptr);
  EXPECT_EQ(reduce_scatter(full, into(integers)),
            who + "destination holds i32, expected fp32, bf16 or fp16");
  Slices of_integers = full;
  of_integers.buffer = View(buffer.view().data(), 750, DType::i32, nullptr);
  EXPECT_EQ(reduce_scatter(of_integers, into(spare(0, 150))),
            who + "full holds i32, expected fp32, bf16 or fp16");
  EXPECT_EQ(reduce_scatter(full, into(buffer.slice(0, 150))),
            who + "destination overlaps slice 0 of full; give it its own memory");
  EXPECT_EQ(reduce_scatter(full, into(halves(150), {halves(150)})),
            who + "addend 0 holds bf16, expected fp32");
  EXPECT_EQ(reduce_scatter(full, into(spare(0, 150), {spare(200, 149)})),
            who + "addend 0 has 149 elements, expected destination's 150");
  EXPECT_EQ(reduce_scatter(full, into(spare(0, 150), {spare(200, 150), spare(1, 150)})),
            who +
                "addend 1 partly overlaps destination; give both the same memory or none in "
                "common");
}

TEST_F(Checks, ReduceScatterRefusesAWorkspaceThatIsSmallOrShared) {
  const std::string who = "[rank 3] reduce_scatter(h.0): ";
  const ReduceEpilogue fine = into(spare(0, 150), {spare(200, 150)});
  EXPECT_EQ(reduce_scatter(full, fine, spare(3000, 599)),
            who +
                "workspace has 599 elements, expected at least 600; ask "
                "reduce_scatter_workspace()");
  EXPECT_EQ(reduce_scatter(full, fine, halves(600)), who + "workspace holds bf16, full holds fp32");
  EXPECT_EQ(reduce_scatter(full, fine, buffer.slice(0, 750)),
            who + "workspace overlaps slice 0 of full; give it its own memory");
  EXPECT_EQ(reduce_scatter(full, fine, spare(149, 600)),
            who + "workspace overlaps destination; give it its own memory");
  EXPECT_EQ(reduce_scatter(full, fine, spare(349, 600)),
            who + "workspace overlaps addend 0; give it its own memory");
}

TEST_F(Checks, AllReduceBroadcastAndAllToAllRefuseWhatDoesNotFit) {
  EXPECT_EQ(error_of([&] { comm->all_reduce(halves(8), ReduceOp::sum, stream, {"norm"}); }),
            "[rank 3] all_reduce(norm): values hold bf16, expected fp32, fp64, i32 or i64");
  EXPECT_EQ(error_of([&] { comm->broadcast(spare(0, 1), 5, stream, {"x"}); }),
            "[rank 3] broadcast(x): root 5 is outside the world of 5 ranks");
  EXPECT_EQ(error_of([&] { comm->broadcast(spare(0, 1), -1, stream, {"x"}); }),
            "[rank 3] broadcast(x): root -1 is outside the world of 5 ranks");
  Slices receive = Slices::even(spare(0, 750), 5);
  receive.ranges[3].count = 149;
  EXPECT_EQ(error_of([&] { comm->all_to_all(full, receive, stream, {"x"}); }),
            "[rank 3] all_to_all(x): slice 3 of send has 150 elements, of receive 149; a rank "
            "sends itself what it receives of itself");
  EXPECT_EQ(error_of([&] { comm->all_to_all(full, full, stream, {"x"}); }),
            "[rank 3] all_to_all(x): slice 0 of receive overlaps slice 0 of send; give it its own "
            "memory");
  const Slices of_halves = Slices::even(halves(750), 5);
  EXPECT_EQ(error_of([&] { comm->all_to_all(full, of_halves, stream, {"x"}); }),
            "[rank 3] all_to_all(x): send holds fp32, receive holds bf16");
}

}  // namespace
}  // namespace zero::test
