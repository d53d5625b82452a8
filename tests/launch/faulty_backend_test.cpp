// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/faulty_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "launch/train/run_device.h"
#include "tests/collectives/recorder.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/launch/recorded_actions.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr int kVictim = 2;

Fault fault_of(FaultKind kind, FaultPhase phase, const std::string& unit = "h.1") {
  return {.kind = kind, .rank = kVictim, .step = 1, .phase = phase, .unit = unit};
}

/// Every collective on `communicator`, of units h.0 and h.1; gives all that they brought.
std::vector<float> values_of(Communicator& communicator, Device& device) {
  const int rank = communicator.rank();
  const int world = communicator.size();
  Stream& stream = device.communication();
  std::vector<float> all;
  for (const char* unit : {"h.0", "h.1"}) {
    std::vector<float> full(static_cast<std::size_t>(3 * world));
    std::iota(full.begin(), full.end(), static_cast<float>(100 * rank + 1));
    const Slices slices = Slices::even(View::of(std::span(full)), world);
    std::vector<float> sum(3);
    communicator.reduce_scatter(slices, {{}, View::of(std::span(sum)), nullptr}, {}, stream,
                                {unit});
    communicator.all_gather(slices.of(rank), slices, stream, {unit});
    std::vector<float> received(full.size());
    communicator.all_to_all(slices, Slices::even(View::of(std::span(received)), world), stream,
                            {unit});
    stream.synchronize();
    std::vector<float> reduced = full;
    communicator.all_reduce(View::of(std::span(reduced)), ReduceOp::sum, stream, {unit});
    std::vector<float> sent{static_cast<float>(rank), 7};
    communicator.broadcast(View::of(std::span(sent)), world - 1, stream, {unit});
    communicator.barrier(stream, {unit});
    stream.synchronize();
    for (const auto* part : {&full, &sum, &received, &reduced, &sent}) {
      all.insert(all.end(), part->begin(), part->end());
    }
  }
  return all;
}

using Body = std::function<void(Communicator& plain, Communicator& faulty, Device& device)>;

/// Runs `body` on ranks whose second communicator meets `fault` in step 1.
void with_fault(const Fault& fault, const Body& body) {
  local::run(kRanks, [&](Communicator& world) {
    const auto device = cpu::open();
    RecordedActions record;
    FaultInjector faults({.listed = {fault}}, world.rank(), kRanks, record.actions());
    faults.phase(1, "forward");
    Communicator faulty(with_faults(world.implementation(), faults));
    ZERO_CHECK((faulty.implementation() == world.implementation()) == (world.rank() != kVictim),
               "only the victim's collectives are looked at");
    body(world, faulty, *device);
  });
}

/// The error of rank `rank`, or of the first that has one, in a job that meets `fault`.
std::string error_with(const Fault& fault) {
  return error_of([&] {
    with_fault(fault, [](Communicator&, Communicator& faulty, Device& device) {
      values_of(faulty, device);
    });
  });
}

TEST(FaultyBackend, PassesEverythingOnAsItIs) {
  const Fault elsewhere = fault_of(FaultKind::skip, FaultPhase::gather, "h.9");
  with_fault(elsewhere, [](Communicator& plain, Communicator& faulty, Device& device) {
    ZERO_CHECK(values_of(plain, device) == values_of(faulty, device), "other values");
    ZERO_CHECK(faulty.rank() == plain.rank() && faulty.size() == plain.size(), "the world");
    ZERO_CHECK(faulty.local_rank() == plain.local_rank(), "the host's ranks");
    ZERO_CHECK(faulty.local_size() == plain.local_size(), "the host's size");
    ZERO_CHECK(faulty.backend() == plain.backend(), "the kind");
    ZERO_CHECK(faulty.run_backend() == plain.run_backend(), "the kind of a run");
    ZERO_CHECK(faulty.description() == plain.description(), "the description");
    ZERO_CHECK(&faulty.store() == &plain.store(), "the store");
    ZERO_CHECK(faulty.wait_limits() == plain.wait_limits(), "the limits");
    const SharedBuffer shared =
        faulty.allocate_shared(device, 8, DType::fp32, MemoryClass::other, "shared");
    const SharedBuffer other =
        plain.allocate_shared(device, 8, DType::fp32, MemoryClass::other, "shared");
    ZERO_CHECK(shared.shared == other.shared, "shared memory");
    const Slices slices = Slices::even(shared.buffer.view(), kRanks);
    ZERO_CHECK(faulty.reduce_scatter_workspace(slices) == plain.reduce_scatter_workspace(slices),
               "the workspace");
    const auto charged = [&](Communicator& by) {
      const Buffer one = by.allocate(device, 8, DType::fp32, MemoryClass::other, "one");
      const Buffer two = by.allocate_symmetric(device, 8, DType::fp32, MemoryClass::other, "two");
      return device.ledger().snapshot().current_of(MemoryClass::other);
    };
    ZERO_CHECK(charged(faulty) == charged(plain), "the buffers");
    ZERO_CHECK(faulty.split(-1, 0) == nullptr, "no part");
  });
}

TEST(FaultyBackend, PartsOfTheWorldMeetFaultsToo) {
  Fault fault = fault_of(FaultKind::flip_wire, FaultPhase::gather);
  fault.phase.reset();
  fault.collective = "all_to_all(h.1)";
  with_fault(fault, [](Communicator& plain, Communicator& faulty, Device& device) {
    const auto expected = plain.split(plain.rank() % 2, 0);
    const auto part = faulty.split(faulty.rank() % 2, 0);
    ZERO_CHECK(part->implementation()->members() == expected->implementation()->members(),
               "the members");
    const bool same = values_of(*expected, device) == values_of(*part, device);
    ZERO_CHECK(same == (plain.rank() != kVictim), "rank {}", plain.rank());
  });
}

TEST(FaultyBackend, APartOfOneRankMeetsNothing) {
  with_fault(fault_of(FaultKind::skip, FaultPhase::gather),
             [](Communicator& plain, Communicator& faulty, Device& device) {
               const auto expected = plain.split(plain.rank(), 0);
               const auto part = faulty.split(faulty.rank(), 0);
               ZERO_CHECK(values_of(*expected, device) == values_of(*part, device), "values");
             });
}

TEST(FaultyBackend, ASkippedCollectiveIsAMismatchThatNamesTheVictim) {
  // The others are in the collective of h.1, the victim in the next one.
  EXPECT_THAT(
      error_with(fault_of(FaultKind::skip, FaultPhase::gather)),
      AllOf(HasSubstr("all_gather(h.1)"), HasSubstr("all_to_all(h.1)"), HasSubstr("rank 2")));
  EXPECT_THAT(error_with(fault_of(FaultKind::skip, FaultPhase::reduce)),
              AllOf(HasSubstr("reduce_scatter(h.1)"), HasSubstr("rank 2")));
}

TEST(FaultyBackend, AResizedCollectiveIsAMismatchThatNamesIt) {
  for (const FaultPhase phase : {FaultPhase::gather, FaultPhase::reduce}) {
    EXPECT_THAT(
        error_with(fault_of(FaultKind::resize, phase)),
        AllOf(HasSubstr(phase == FaultPhase::gather ? "all_gather(h.1)" : "reduce_scatter(h.1)"),
              HasSubstr("rank 2")));
  }
  for (const char* name : {"all_reduce(h.1)", "all_to_all(h.1)", "broadcast(h.1)"}) {
    Fault fault = fault_of(FaultKind::resize, FaultPhase::gather, "");
    fault.phase.reset();
    fault.collective = name;
    EXPECT_THAT(error_with(fault), AllOf(HasSubstr(name), HasSubstr("rank 2")));
  }
}

/// The number of ranks for which any value differs from those without a fault, and of the victim.
std::pair<int, int> ranks_that_differ(const Fault& fault) {
  std::atomic<int> differ = 0;
  std::atomic<int> victim = 0;
  with_fault(fault, [&](Communicator& plain, Communicator& faulty, Device& device) {
    if (values_of(plain, device) == values_of(faulty, device)) return;
    ++differ;
    if (plain.rank() == kVictim) ++victim;
  });
  return {differ, victim};
}

TEST(FaultyBackend, ABitOnTheWireIsOneRanksAlone) {
  Fault fault = fault_of(FaultKind::flip_wire, FaultPhase::gather, "");
  fault.phase.reset();
  for (const char* name : {"all_to_all(h.1)", "broadcast(h.1)"}) {
    fault.collective = name;
    EXPECT_EQ(ranks_that_differ(fault), std::pair(1, 1)) << name;
  }
  // What is summed or gathered first is not read again here.
  EXPECT_EQ(ranks_that_differ(fault_of(FaultKind::flip_wire, FaultPhase::reduce)), std::pair(1, 1));
}

TEST(FaultyBackend, ABitInMemoryReachesOtherRanks) {
  const auto [gathered, of_gather] =
      ranks_that_differ(fault_of(FaultKind::flip_memory, FaultPhase::gather));
  EXPECT_EQ(gathered, kRanks);  // its shard is in everyone's values
  EXPECT_EQ(of_gather, 1);
  const auto [summed, of_sum] =
      ranks_that_differ(fault_of(FaultKind::flip_memory, FaultPhase::reduce));
  EXPECT_GE(summed, 1);  // the rank whose slice of the victim's gradient it is
}

template <typename T>
std::vector<T> flipped(std::vector<T> values) {
  flip_bit(View::of(std::span(values)));
  return values;
}

TEST(FlipBit, ChangesOneBitOfOneNumberWhichStaysFinite) {
  const std::vector<float> floats = flipped<float>({1, 2, 0, 3, 4});
  EXPECT_EQ(floats, (std::vector<float>{1, 2, 0, 2, 4}));  // 3 is 1.5 x 2
  const std::vector<double> doubles = flipped<double>({1, 3});
  EXPECT_EQ(doubles, (std::vector<double>{1, 2}));
  EXPECT_EQ(flipped<std::int32_t>({4, 6, 8}), (std::vector<std::int32_t>{4, 7, 8}));
  EXPECT_EQ(flipped<std::uint8_t>({5}), (std::vector<std::uint8_t>{4}));
  const std::vector<float> zeros = flipped<float>({0, 0});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(zeros[1]), 1U << 22U);
  std::vector<std::uint16_t> brain{0x3f80};  // 1 in bf16
  flip_bit(View(brain.data(), 1, DType::bf16, nullptr));
  EXPECT_EQ(brain[0], 0x3fc0);
  std::vector<std::uint16_t> half{0x3c00};  // 1 in fp16
  flip_bit(View(half.data(), 1, DType::fp16, nullptr));
  EXPECT_EQ(half[0], 0x3e00);
}

TEST(RunDevice, ItsWorldMeetsFaultsBeforeOthersHearOfTheCollective) {
  const TrainConfig config = config_with({"run.device=cpu", "run.threads=1"}, 2);
  local::run(2, [&](Communicator& host) {
    RecordedActions record;
    Recorder other(host);
    Fault skip = fault_of(FaultKind::skip, FaultPhase::gather);
    Fault error = fault_of(FaultKind::error, FaultPhase::reduce);
    skip.rank = error.rank = 0;
    FaultInjector faults({.listed = {skip, error}}, host.rank(), 2, record.actions());
    RunDevice device(config, host, nullptr);
    device.attach(faults);
    const bool is_plain = device.world().implementation() == host.implementation();
    ZERO_CHECK(is_plain == (host.rank() != 0), "rank {}", host.rank());
    faults.phase(1, "forward");
    if (host.rank() != 0) return;
    Stream& stream = device.device().communication();
    std::vector<float> values(4);
    const Slices slices = Slices::even(View::of(std::span(values)), 2);
    device.world().all_gather(slices.of(0), slices, stream, {"h.1"});  // left out: no wait
    const std::string found = error_of([&] {
      device.world().reduce_scatter(slices, {{}, slices.of(0), nullptr}, {}, stream, {"h.1"});
    });
    ZERO_CHECK(found == "[rank 0] run.faults: thrown on purpose at step 1, reduce_scatter(h.1)",
               "found: {}", found);
    ZERO_CHECK(other.records().size() == 1, "the other heard {}", other.records().size());
  });
}

}  // namespace
}  // namespace zero::testing
