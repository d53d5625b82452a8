// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "launch/simulate/goodput.h"
#include "launch/simulate/link_times.h"
#include "launch/simulate/operation_rates.h"
#include "launch/simulate/rank_times.h"
#include "tests/errors.h"
#include "tests/scratch.h"

// The parts of a simulation, by figures that are worked out by hand.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

Machine two_level() {
  Machine machine{.hosts = 4, .devices = 4, .memory = 1, .source = "c.json"};
  machine.within_host = 100;
  machine.between_hosts = 10;
  machine.times.within_host_latency = 1;
  machine.times.between_hosts_latency = 5;
  machine.times.memory_bandwidth = 1e18;
  return machine;
}

std::vector<int> every(int step, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<std::size_t>(i)] = i * step;
  return ranks;
}

LinkTimes::Cost cost(const Machine& machine, BackendKind backend, Operation operation,
                     const std::vector<int>& ranks, std::int64_t bytes) {
  LinkTimes links(machine, {.world = machine.world(), .backend = backend});
  return links.cost({.operation = operation, .total_bytes = bytes, .ranks = ranks});
}

TEST(LinkTimes, FindsWhereAGroupIs) {
  Machine machine = two_level();
  machine.times.hosts_of_switch = 2;
  const LinkTimes links(machine, {.world = 16});
  const GroupSpread all = links.spread(every(1, 16));
  EXPECT_EQ(all.hosts.count, 4);
  EXPECT_EQ(all.switches.count, 2);
  EXPECT_EQ(all.hosts.most_ranks, 4);
  EXPECT_EQ(all.switches.most_ranks, 8);
  const GroupSpread one_a_host = links.spread(every(4, 4));
  EXPECT_EQ(one_a_host.hosts.count, 4);
  EXPECT_EQ(one_a_host.hosts.most_ranks, 1);
  EXPECT_EQ(one_a_host.switches.most_ranks, 2);
  machine.times.hosts_of_switch = 0;  // one has them all
  const GroupSpread five = links.spread(every(1, 5));
  EXPECT_EQ(five.hosts.fewest_ranks, 1);
  EXPECT_EQ(five.switches.count, 1);
  EXPECT_EQ(five.switches.fewest_ranks, 5);
}

TEST(LinkTimes, OfARingIsItsSlowestLevelAndItsHops) {
  const Machine machine = two_level();
  const auto nccl = BackendKind::nccl;
  // 3/4 of 400 bytes at 100 a second; 3 hops of a second.
  const auto within = cost(machine, nccl, Operation::all_gather, every(1, 4), 400);
  EXPECT_EQ(within.transfer, 3);
  EXPECT_EQ(within.latency, 3);
  // 15/16 of 1600 bytes leave a host through 4 devices, at 10 each; 3 of 15 hops leave a host.
  const auto across = cost(machine, nccl, Operation::all_gather, every(1, 16), 1600);
  EXPECT_EQ(across.transfer, 37.5);
  EXPECT_EQ(across.level, LinkLevel::between_hosts);
  EXPECT_EQ(across.latency, 12 + 3 * 5);
  // One rank of each host: a device carries all of its group.
  EXPECT_EQ(cost(machine, nccl, Operation::all_gather, every(4, 4), 400).transfer, 30);
}

/// The lone rank of the last host sends to all others through one device.
TEST(LinkTimes, OfAHostThatIsPartlyTakenAreItsOwn) {
  const Machine machine = two_level();
  const auto nccl = BackendKind::nccl;
  EXPECT_EQ(cost(machine, nccl, Operation::all_gather, every(1, 5), 500).transfer, 40);
  EXPECT_EQ(cost(machine, nccl, Operation::all_to_all, every(1, 5), 500).transfer, 40);
  EXPECT_EQ(cost(machine, BackendKind::mpi, Operation::all_to_all, every(1, 5), 500).transfer, 40);
}

TEST(LinkTimes, OfAHostsLinkIsShared) {
  Machine machine = two_level();
  machine.times.host_bandwidth = 20;  // in place of 4 x 10
  EXPECT_EQ(cost(machine, BackendKind::nccl, Operation::all_gather, every(4, 4), 400).transfer, 60);
  EXPECT_EQ(cost(machine, BackendKind::nccl, Operation::all_gather, every(1, 16), 1600).transfer,
            75);
}

TEST(LinkTimes, OfGpusHaveACollectivesFixedCostOnce) {
  Machine machine = two_level();
  machine.times.collective = 7;
  const auto latency = [&](Operation operation, int ranks) {
    return cost(machine, BackendKind::nccl_fast, operation, every(1, ranks), 1600).latency;
  };
  EXPECT_EQ(latency(Operation::all_gather, 2), 7 + 1);
  EXPECT_EQ(latency(Operation::all_gather, 4), 7 + 3) << "a hop more for each rank";
  EXPECT_EQ(latency(Operation::all_gather, 16), 7 + 12 + 3 * 5);
  EXPECT_EQ(latency(Operation::all_to_all, 16), 7 + 5);
  EXPECT_EQ(latency(Operation::broadcast, 4), 7 + 1) << "chunks follow each other";
  EXPECT_EQ(latency(Operation::broadcast, 16), 7 + 5);
  EXPECT_EQ(cost(machine, BackendKind::nccl, Operation::all_reduce, every(1, 4), 1 << 20).latency,
            7 + 1 + 7 + 3)
      << "an exact sum of many bytes is an exchange, then a gather";
  EXPECT_EQ(cost(machine, BackendKind::mpi, Operation::barrier, every(1, 16), 0).latency, 1 + 2 * 5)
      << "of CPUs it is part of the latency";
}

TEST(LinkTimes, OfAnAllReduceAreOneAlgorithms) {
  const Machine machine = two_level();
  const auto all_reduce = [&](std::int64_t bytes) {
    return cost(machine, BackendKind::nccl_fast, Operation::all_reduce, every(1, 16), bytes);
  };
  // A tree: up and down 3 hops within a host and 2 between, of 2 x 920 / 0.92 bytes.
  EXPECT_DOUBLE_EQ(all_reduce(920).latency, 2 * (3 + 2 * 5));
  EXPECT_DOUBLE_EQ(all_reduce(920).transfer, 2000.0 / 4 / 10);
  // A ring, twice around: 28 s more of latency, but 30 s less for 2 x 15/16 of the bytes.
  EXPECT_DOUBLE_EQ(all_reduce(4000).latency, 2 * (12 + 3 * 5));
  EXPECT_DOUBLE_EQ(all_reduce(4000).transfer, 7500.0 / 4 / 10);
}

TEST(LinkTimes, OfExactSumsIsADirectExchange) {
  Machine machine = two_level();
  machine.times.message = 0.5;
  // A slice of 100 bytes to each of 12 ranks of other hosts; 15 messages.
  const auto exact =
      cost(machine, BackendKind::nccl, Operation::reduce_scatter, every(1, 16), 1600);
  EXPECT_EQ(exact.transfer, 120);
  EXPECT_EQ(exact.latency, 5 + 7.5);
  EXPECT_EQ(
      cost(machine, BackendKind::nccl_fast, Operation::reduce_scatter, every(1, 16), 1600).transfer,
      37.5);
}

TEST(LinkTimes, OfOneHostsCpusCopiesInMemory) {
  const Machine machine = two_level();
  const auto host = BackendKind::host;
  EXPECT_EQ(cost(machine, host, Operation::all_gather, every(1, 4), 40000).transfer, 400);
  EXPECT_EQ(cost(machine, host, Operation::barrier, every(1, 4), 0).seconds(), 1);
  LinkTimes links(machine, {.world = 4, .backend = host});
  const std::vector<int> ranks = every(1, 4);
  const auto shared = links.cost({.operation = Operation::all_gather,
                                  .total_bytes = 40000,
                                  .own_bytes = 10000,
                                  .to_shared_memory = true,
                                  .ranks = ranks});
  EXPECT_EQ(shared.transfer, 100) << "each rank writes its slice once";
}

TEST(LinkTimes, LeaveComputeItsCoresWhileTheyWaitForTheWire) {
  const Machine machine = two_level();
  const auto mpi = cost(machine, BackendKind::mpi, Operation::all_gather, every(1, 8), 40000);
  EXPECT_EQ(mpi.transfer, 500) << "5000 bytes of a rank, at 10 a second, to the other host";
  EXPECT_EQ(mpi.seconds(), 507);
  EXPECT_EQ(mpi.working, 402) << "copies within a host, and two barriers";
  const auto gpus = cost(machine, BackendKind::nccl, Operation::all_gather, every(1, 8), 40000);
  EXPECT_EQ(gpus.working, gpus.seconds());
  LinkTimes links(machine, {.world = 8, .backend = BackendKind::mpi});
  const std::vector<int> ranks = every(1, 8);
  const planning::Span span =
      links.span({.operation = Operation::all_gather, .total_bytes = 40000, .ranks = ranks}, 3);
  EXPECT_EQ(span.begin, 3);
  EXPECT_EQ(span.end, 510);
  EXPECT_EQ(span.working, 402);
}

TEST(Meetings, BeginWhenTheLastComes) {
  Meetings meetings({0, 1});
  EXPECT_EQ(meetings.latest({0, 2, 4}, 7), 7) << "no other rank of it is simulated";
  double other = 0;
  {
    const std::jthread thread([&] {
      other = meetings.latest({0, 1}, 5);
      meetings.latest({0, 1}, 9);
    });
    EXPECT_EQ(meetings.latest({0, 1}, 3), 5);
    EXPECT_EQ(meetings.latest({0, 1}, 6), 9);
  }
  EXPECT_EQ(other, 5);
  meetings.fail();
  EXPECT_THAT(error_of([&] { meetings.latest({0, 1}, 1); }), HasSubstr("has failed"));
}

TEST(Cores, AreSharedByTheRanksOfAHost) {
  const CoreShare enough = CoreShare::of(8, 2, 3);
  EXPECT_EQ(enough.compute_slowdown, 1);
  EXPECT_EQ(enough.compute_share, 1) << "each rank has a core for its communication";
  EXPECT_EQ(CoreShare::of(2, 2, 1).compute_share, 0) << "one core for both";
  EXPECT_EQ(CoreShare::of(2, 1, 2).compute_share, 0.5);
  const CoreShare crowded = CoreShare::of(2, 8, 1);
  EXPECT_EQ(crowded.compute_slowdown, 4);
  EXPECT_EQ(crowded.copy_slowdown, 4);
  EXPECT_EQ(CoreShare::of(0, 8, 1).compute_share, 1);
}

TEST(Cores, ThatComputeSlowTransfersDown) {
  EXPECT_EQ(CoreShare::of(1, 1, 1).transfer_share(0.5), 0.5) << "one core for both";
  EXPECT_EQ(CoreShare::of(2, 1, 2).transfer_share(0.5), 0.75) << "one of two cores has both";
  EXPECT_EQ(CoreShare::of(8, 2, 3).transfer_share(0.5), 1) << "a core for itself";
  EXPECT_EQ(CoreShare::of(0, 8, 1).transfer_share(0.5), 1);
  EXPECT_EQ(CoreShare::of(1, 4, 1).transfer_share(1), 1);
  EXPECT_DOUBLE_EQ(CoreShare::of(1, 1, 1).waiting_share(0.2), 0.8);
  EXPECT_DOUBLE_EQ(CoreShare::of(1, 4, 1).waiting_share(0.2), 0.5) << "looks put each other off";
  EXPECT_DOUBLE_EQ(CoreShare::of(2, 1, 2).waiting_share(0.2), 0.9) << "of one core of two";
  EXPECT_EQ(CoreShare::of(8, 2, 3).waiting_share(0.2), 1) << "a core for itself";
  EXPECT_EQ(CoreShare::of(1, 4, 1).waiting_share(0), 1);
}

/// Work named "5" takes 5 seconds.
class NamedSeconds final : public planning::WorkTimes {
  double seconds(Lane /*lane*/, std::string_view what, std::int64_t /*bytes*/) override {
    return std::stod(std::string(what));
  }
};

/// Two hosts of one core each, with all ranks of a host on it. A gather brings each host the 80
/// bytes of the other in 8 s, at 10 bytes a second. A thread that waits for it takes a fifth of the
/// core if it is alone, four take a half. Beside compute a rank alone reaches 5 bytes a second,
/// half of the rate, and so does each of four, which is more than its part of the link.
TEST(Cores, AreSharedByTheLooksOfAllRanksThatWait) {
  struct Crowd {
    int ranks;
    double left, rate;
  };
  for (const auto& [ranks, left, rate] : {Crowd{1, 0.8, 0.5}, Crowd{4, 0.5, 1}}) {
    SCOPED_TRACE(ranks);
    Machine machine{.hosts = 2, .devices = ranks, .memory = 1, .source = "c.json"};
    machine.within_host = 1e18;
    machine.between_hosts = 10;
    machine.times.host_bandwidth = 10;
    machine.times.beside_compute = 5;
    machine.times.memory_bandwidth = 1e18;
    const CoreShare cores = CoreShare::of(1, ranks, 1);
    LinkTimes links(machine, {.world = 2 * ranks, .backend = BackendKind::mpi, .cores = cores});
    NamedSeconds work;
    const auto device = planning::open({.times = &work,
                                        .inline_compute = true,
                                        .compute_share = cores.compute_share,
                                        .waiting_share = cores.waiting_share(0.2)},
                                       1, MemorySpace::host, DeviceKind::cpu);
    const auto world = planning::communicator(0, 2 * ranks, BackendKind::mpi, device.get(), &links);
    const Mark begin = device->compute().mark();
    const auto at = [&](Stream& stream) { return stream.mark().seconds_since(begin).value(); };
    const View full(reinterpret_cast<void*>(1 << 20), 160, DType::u8, device.get());
    const Slices slices = Slices::even(full, 2 * ranks);
    world->all_gather(slices.of(0), slices, device->communication(), {"h.0", {}});
    EXPECT_NEAR(at(device->communication()), 8, 1e-9) << "alone, the wire is the slowest";
    // A host's 3 s of compute, in turns of its ranks.
    device->compute().submit(fmt::format("{}", 3.0 / ranks * cores.compute_slowdown), [] {});
    const double computes = 3 / left;
    EXPECT_NEAR(at(device->compute()), computes, 1e-9);
    const double lost = computes * (1 - rate);
    EXPECT_NEAR(at(device->communication()), 8 + lost, 1e-9);
    device->compute().wait(device->communication().record());
    EXPECT_NEAR(device->compute().waited_seconds(), 8 + lost - computes, 1e-9);
    device->compute().submit("3", [] {});
    EXPECT_NEAR(at(device->compute()), 11 + lost, 1e-9) << "at full speed with no wait";
  }
}

TEST(OperationRates, AreInterpolatedBetweenSizes) {
  const auto rates = OperationRates::of(nlohmann::json::parse(R"([
        {"section": "ops", "name": "linear_forward 8x8", "dtype": "bf16", "bytes": 100,
         "value": 1e-9, "unit": "GFLOP/s"},
        {"section": "ops", "name": "linear_forward 80x80", "dtype": "bf16", "bytes": 10000,
         "value": 1e-7, "unit": "GFLOP/s"},
        {"section": "ops", "name": "adamw", "dtype": "bf16", "bytes": 50, "value": 2e-9,
         "unit": "GB/s"}])"),
                                        "ops.json");
  const auto seconds = [&](const char* name, double flop, double bytes) {
    return rates.seconds({name, flop, bytes}, DType::bf16).value_or(-1);
  };
  EXPECT_DOUBLE_EQ(seconds("linear_forward 9x9", 30, 100), 30);
  EXPECT_DOUBLE_EQ(seconds("linear_forward 9x9", 30, 1000), 3) << "10 FLOP/s halfway";
  EXPECT_DOUBLE_EQ(seconds("linear_forward 9x9", 300, 1e9), 3) << "beyond the largest";
  EXPECT_DOUBLE_EQ(seconds("adamw", 0, 80), 40);
  EXPECT_EQ(seconds("gelu_forward", 1, 1), -1);
  EXPECT_FALSE(rates.seconds({"adamw", 0, 80}, DType::fp32).has_value());
}

TEST(OperationRates, AreThoseOfAProfile) {
  const auto rates = OperationRates::of(nlohmann::json::parse(R"({"profile": {"work": [
        {"name": "norm", "calls": 4, "seconds": 2, "flop": 0, "bytes": 400},
        {"name": "convert", "calls": 4, "seconds": 2, "flop": 0, "bytes": 0}]}})"),
                                        "log");
  EXPECT_DOUBLE_EQ(rates.seconds({"norm", 0, 100}, DType::bf16).value(), 0.5);
  const auto refusal = [](const char* text) {
    return error_of([&] { OperationRates::of(nlohmann::json::parse(text), "ops.json"); });
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("ops.json: found no rate of any operation, expected"));
  EXPECT_THAT(refusal("{}"), HasSubstr("expected the rows of zero_bench ops --json, a profile"));
  EXPECT_THAT(refusal(R"([{"section": "ops", "unit": "GB/s", "value": "x"}])"),
              HasSubstr("ops.json: rows[0].value: found \"x\", expected a number"));
  EXPECT_THAT(refusal(R"({"work": [{"name": "norm"}]})"),
              HasSubstr("ops.json: work[0].seconds is missing; expected a number"));
}

TEST(OperationRates, OfALogAreThoseOfItsLastProfile) {
  const Scratch folder;
  const auto line = [](double seconds) {
    return fmt::format(R"({{"final": true, "profile": {{"work": [{{"name": "norm", "calls": 1,
                           "seconds": {}, "flop": 0, "bytes": 100}}]}}}})",
                       seconds);
  };
  const std::string one = nlohmann::json::parse(line(2)).dump() + "\n";
  const std::string other = nlohmann::json::parse(line(3)).dump() + "\n";
  const auto seconds = [&](const std::string& text) {
    const auto rates = OperationRates::read(folder.write("run.log", text));
    return rates.seconds({"norm", 0, 100}, DType::bf16).value();
  };
  EXPECT_DOUBLE_EQ(seconds(one), 2);
  EXPECT_DOUBLE_EQ(seconds(one + other + "{\"step\": 1}\n"), 3);
  const std::string none = folder.write("none.log", "{\"step\": 1}\n{\"step\": 2}\n");
  EXPECT_THAT(error_of([&] { OperationRates::read(none); }),
              HasSubstr("none.log: found no rate of any operation, expected the rows of"));
}

TEST(Goodput, IsGreatestAtTheBestInterval) {
  for (const double save : {1.0, 60.0, 3000.0}) {
    const Failures failures{.between = 36000, .save = save, .restart = 600};
    const double best = failures.best_interval();
    EXPECT_GT(failures.goodput(best), failures.goodput(best * 1.001));
    EXPECT_GT(failures.goodput(best), failures.goodput(best / 1.001));
  }
  // Young's first order: sqrt(2 * save * between).
  const Failures rare{.between = 1e9, .save = 10, .restart = 0};
  EXPECT_NEAR(rare.best_interval() / std::sqrt(2 * 10 * 1e9), 1, 1e-3);
  EXPECT_GT(rare.goodput(rare.best_interval()), 0.999);
}

}  // namespace
}  // namespace zero::testing
