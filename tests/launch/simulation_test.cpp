// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/simulation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/step_sums.h"
#include "launch/config/configuration.h"
#include "launch/simulate/simulate_program.h"
#include "launch/train/memory_fit.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"

// A step on a virtual clock.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

/// Hosts of 8 devices; the rates are those of no real machine.
Machine cluster(int hosts, const std::string& between = "40GB/s", const std::string& more = "") {
  const std::string text = fmt::format(
      R"({{"hosts": {}, "devices": 8, "kind": "cpu", "memory": "80GB", "compute": "100TFLOP/s",
           "compute_fp32": "50TFLOP/s", "memory_bandwidth": "2TB/s",
           "links": {{"within_host": {{"bandwidth": "300GB/s", "latency": "3us"}},
                      "between_hosts": {{"bandwidth": "{}", "latency": "10us"}}}}{}}})",
      hosts, between, more);
  return machine_of(parse_json_text(text, "c.json"), "c.json");
}

TrainConfig config_of(int stage, int world, std::vector<std::string> more = {}) {
  more.insert(more.end(),
              {"run.threads=1", "run.device=cpu", fmt::format("zero_optimization.stage={}", stage),
               "train_batch_size=null", "train_micro_batch_size_per_gpu=1"});
  return config_with(more, world);
}

/// One rank of N sends (N - 1) / N of all P elements, padded, for each gather and each reduction.
TEST(Simulation, SendsTheBytesOfTheFormulasAtManyRanks) {
  constexpr int kWorld = 1024;
  const std::int64_t norm = Communicator::sent_bytes(
      Operation::all_reduce, StepSums::kCount * size_of(DType::i64), kWorld);
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const TrainConfig config =
        config_of(stage, kWorld, {"zero_optimization.stage3_param_persistence_threshold=0"});
    const TrafficCounter sent = simulate(config, cluster(128)).slowest().traffic.total();
    const Plan plan = make_plan(config, BackendKind::mpi);
    const std::int64_t all = (plan.parameters + plan.padding) * size_of(config.engine.compute);
    const std::int64_t once = all / kWorld * (kWorld - 1);
    EXPECT_EQ(sent.of(Operation::all_reduce), (stage == 0 ? 2 * once : 0) + norm);
    EXPECT_EQ(sent.of(Operation::reduce_scatter), stage == 0 ? 0 : once);
    if (stage < 3) {
      EXPECT_EQ(sent.of(Operation::all_gather), stage == 0 ? 0 : once);
    }
    EXPECT_EQ(sent.of(Operation::all_gather), plan.traffic.total().of(Operation::all_gather));
    EXPECT_LE(sent.of(Operation::all_gather), 2 * once) << "at most forward and backward";
  }
}

TEST(Simulation, LeavesThePlanAsItIs) {
  for (int stage = 0; stage <= 3; ++stage) {
    const TrainConfig config = config_of(stage, 16);
    const Simulation simulation = simulate(config, cluster(2));
    EXPECT_EQ(simulation.slowest().memory, plan_memory(config, 0, 16, BackendKind::mpi));
  }
}

TEST(Simulation, ChoosesRecomputeForTheHostsThatAreUsed) {
  TrainConfig config =
      config_of(2, 8, {"activation_checkpointing.recompute=auto", "run.memory_limit=1GiB"});
  const std::int64_t needed = planned_rank_bytes(config, BackendKind::host);
  ASSERT_GT(planned_rank_bytes(config, BackendKind::mpi), needed) << "both hosts would need more";
  const auto repeated = [&](std::int64_t limit) {
    config.recompute.memory_limit = limit;
    return simulate(config, cluster(2)).slowest().compute.repeated;
  };
  EXPECT_EQ(repeated(needed), 0);
  EXPECT_GT(repeated(needed - 1), 0);
}

TEST(Simulation, IsNoSlowerOverFasterLinks) {
  for (int stage = 0; stage <= 3; ++stage) {
    double last = 1e9;
    for (const char* between : {"1MB/s", "10MB/s", "100MB/s", "1GB/s", "10GB/s"}) {
      const double seconds = simulate(config_of(stage, 16), cluster(2, between)).step_seconds;
      EXPECT_LE(seconds, last) << stage << " " << between;
      last = seconds;
    }
  }
}

TEST(Simulation, HidesStage3sGathersBehindComputeOverAFastLinkAlone) {
  const std::vector<std::string> wide{"model.width=512", "model.context=512",
                                      "data.sequence_length=512"};
  const auto exposed_at_blocks = [&](const Machine& machine) {
    const SimulatedRank rank = simulate(config_of(3, 16, wide), machine).slowest();
    const auto found = rank.exposed.find("h.*");
    return found == rank.exposed.end() ? 0 : found->second / rank.step_seconds;
  };
  EXPECT_GT(exposed_at_blocks(cluster(2, "1MB/s")), 0.3);
  Machine fast = cluster(2, "100TB/s");
  fast.within_host = 1e14;
  fast.times.within_host_latency = fast.times.between_hosts_latency = 0;
  EXPECT_LT(exposed_at_blocks(fast), 0.05);
}

TEST(Simulation, GivesItsTimeToItsParts) {
  const Simulation simulation = simulate(config_of(3, 16), cluster(2, "1MB/s"));
  const SimulatedRank& rank = simulation.slowest();
  EXPECT_NEAR(
      rank.compute.arithmetic + rank.compute.memory + rank.exposed_seconds + rank.other_seconds(),
      simulation.step_seconds, 1e-9);
  EXPECT_EQ(simulation.limited_by, "links between hosts");
  EXPECT_EQ(simulation.tokens_per_second(), 16 * 32 / simulation.step_seconds);
  double by_unit = 0;
  for (const auto& [kind, seconds] : rank.exposed) by_unit += seconds;
  EXPECT_NEAR(by_unit, rank.exposed_seconds, 1e-9);
  EXPECT_THAT(text_of(simulation), HasSubstr("limited by links between hosts"));
  EXPECT_EQ(json_of(simulation)["world"], 16);
}

TEST(Simulation, OfTensorRanksWithUnevenSlicesWaitsForTheSlowest) {
  const TrainConfig config = config_of(0, 6, {"mesh.tensor=3"});
  const Simulation simulation = simulate(config, cluster(1));
  ASSERT_EQ(simulation.ranks.size(), 2) << "4 heads over 3 ranks: 2, 1, 1";
  EXPECT_EQ(simulation.ranks[0].stands_for + simulation.ranks[1].stands_for, 6);
  EXPECT_NEAR(simulation.ranks[0].step_seconds, simulation.ranks[1].step_seconds,
              0.01 * simulation.step_seconds)
      << "they meet in every layer";
}

TEST(Simulation, WritesATraceOfVirtualTime) {
  const TrainConfig config = config_of(3, 16, {"run.trace=trace.json"});
  const Simulation simulation = simulate(config, cluster(2));
  const auto trace = nlohmann::json::parse(simulation.trace);
  double step = 0;
  bool gathers = false;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "step 1") step = event.at("dur").get<double>() * 1e-6;
    gathers = gathers || event.at("name").get<std::string>().starts_with("all_gather(h.");
  }
  EXPECT_NEAR(step, simulation.step_seconds, 1e-6);
  EXPECT_TRUE(gathers);
}

TEST(Simulation, NeedsTheFiguresOfItsMachine) {
  Machine machine = cluster(2);
  const auto refusal = [&](int world) {
    return error_of([&] { simulate(config_of(3, world), machine); });
  };
  EXPECT_THAT(refusal(17), HasSubstr("c.json: 2 x 8 (hosts x devices) are 16 devices, expected at "
                                     "least one for each of the 17 ranks; set hosts to 3"));
  machine.between_hosts = 0;
  EXPECT_THAT(refusal(16), HasSubstr("c.json: links.between_hosts is missing"));
  EXPECT_EQ(refusal(8), "no error") << "one host needs no such link";
  machine.times.memory_bandwidth = 0;
  EXPECT_THAT(refusal(8), HasSubstr("c.json: memory_bandwidth is missing"));
  machine.kind = DeviceKind::cuda;
  EXPECT_THAT(refusal(8), HasSubstr("c.json: kind is \"gpu\", and run.device \"cpu\""));
}

TEST(Simulation, HasNoDiskForStates) {
  const std::vector<std::string> nvme{"zero_optimization.offload_optimizer.device=nvme",
                                      "zero_optimization.offload_optimizer.nvme_path=/fast"};
  EXPECT_THAT(error_of([&] { simulate(config_of(3, 8, nvme), cluster(1)); }),
              HasSubstr("offload_optimizer.device is \"nvme\", but no disk is simulated"));
  const std::vector<std::string> shards{"zero_optimization.offload_param.device=nvme",
                                        "zero_optimization.offload_param.nvme_path=/fast"};
  EXPECT_THAT(error_of([&] { simulate(config_of(3, 8, shards), cluster(1)); }),
              HasSubstr("offload_param.device is \"nvme\", but no disk is simulated"));
  std::vector<std::string> automatic{
      "model.width=512", "zero_optimization.offload_optimizer.device=auto",
      "zero_optimization.offload_optimizer.nvme_path=/fast",
      "zero_optimization.offload_optimizer.buffer_size=4096", "aio.block_size=4096"};
  EXPECT_EQ(error_of([&] { simulate(config_of(3, 8, automatic), cluster(1)); }), "no error")
      << "the machine has room for all";
  automatic.emplace_back("run.memory_limit=1");
  EXPECT_THAT(error_of([&] { simulate(config_of(3, 8, automatic), cluster(1)); }),
              HasSubstr("offload_optimizer.device is \"nvme\", but no disk is simulated"));
}

TEST(Simulation, HasNoCopiesBetweenAGpuAndItsHost) {
  Machine gpus = cluster(1);
  gpus.kind = DeviceKind::cuda;
  const auto refusal = [&](std::vector<std::string> keys) {
    keys.emplace_back("run.device=cuda");
    std::vector<std::string> all{"zero_optimization.stage=3", "train_batch_size=null",
                                 "train_micro_batch_size_per_gpu=1"};
    all.insert(all.end(), keys.begin(), keys.end());
    return error_of([&] { simulate(config_with(all, 8), gpus); });
  };
  for (const std::string section : {"offload_optimizer", "offload_param"}) {
    EXPECT_THAT(refusal({"zero_optimization." + section + ".device=cpu"}),
                HasSubstr(section + ".device is \"cpu\", but no copies between a GPU and its host "
                                    "are simulated; set it to \"none\""));
  }
  EXPECT_THAT(refusal({"activation_checkpointing.cpu_checkpointing=true"}),
              HasSubstr("activation_checkpointing.cpu_checkpointing is true, but no copies between "
                        "a GPU and its host are simulated; set it to false"));
}

TEST(ClusterFile, RefusesBadKeysOfSimulations) {
  const auto refusal = [](const std::string& more) {
    return error_of([&] { cluster(2, "40GB/s", more); });
  };
  EXPECT_THAT(refusal(R"(, "shares": {"product": 0.5})"),
              HasSubstr("c.json: there is no key \"shares.product\": did you mean products?"));
  EXPECT_THAT(
      refusal(R"(, "shares": {"products": 1.5})"),
      HasSubstr("c.json: shares.products: found 1.5, expected a number above 0, at most 1"));
  EXPECT_THAT(refusal(R"(, "submit": 4)"),
              HasSubstr("c.json: submit: found 4, expected a text with a unit, such as \"5us\""));
  EXPECT_THAT(refusal(R"(, "submit": "4")"),
              HasSubstr("c.json: submit: found \"4\" without a unit"));
  EXPECT_THAT(refusal(R"(, "failures": {"between": "3000h"})"),
              HasSubstr("c.json: failures.save is missing"));
  EXPECT_THAT(refusal(R"(, "cores": 0)"), HasSubstr("c.json: cores: found 0, expected a whole"));
}

/// Between hosts alone, and where a rank has no core for its communication.
TEST(Simulation, OfCpusHasTransfersAndComputeThatSlowEachOtherDown) {
  const auto step = [](int hosts, int cores, double beside_compute, double polling) {
    Machine machine = cluster(hosts, "1GB/s", fmt::format(R"(, "cores": {})", cores));
    machine.times.beside_compute = beside_compute;
    machine.times.polling = polling;
    return simulate(config_of(2, 8 * hosts), machine).slowest();
  };
  const SimulatedRank full = step(2, 8, 0, 0);
  for (const auto& [limit, polling] : {std::pair{0.5e9, 0.0}, std::pair{0.0, 0.1}}) {
    SCOPED_TRACE(polling);
    EXPECT_EQ(step(2, 8, limit, polling).collective_seconds(), full.collective_seconds());
    EXPECT_EQ(step(2, 16, limit, polling).step_seconds, step(2, 16, 0, 0).step_seconds)
        << "a core for both";
    EXPECT_NEAR(step(1, 8, limit, polling).step_seconds / step(1, 8, 0, 0).step_seconds, 1, 1e-9)
        << "no link";
  }
  const auto computing = [](const SimulatedRank& rank) {
    return rank.step_seconds - rank.exposed_seconds;
  };
  EXPECT_GT(computing(step(2, 8, 0, 0.1)), computing(full));
  EXPECT_GT(step(2, 8, 0.5e9, 0).step_seconds, full.step_seconds);
  EXPECT_GT(step(2, 8, 0.5e9, 0).exposed_seconds, full.exposed_seconds);
  EXPECT_EQ(step(2, 8, 1e9, 0).step_seconds, full.step_seconds) << "no less than the link";
}

TEST(SimulateFlag, NamesTheClusterAndPerhapsRanks) {
  for (const char* text :
       {"ranks=1024,cluster=a b.json", "cluster=a b.json,ranks=1024", "ranks=1024,a b.json"}) {
    const SimulateFlag flag = SimulateFlag::from(text);
    EXPECT_EQ(flag.ranks, 1024) << text;
    EXPECT_EQ(flag.cluster, "a b.json") << text;
  }
  for (const char* text : {"cluster=c.json", "c.json"}) {
    EXPECT_EQ(SimulateFlag::from(text).ranks, 0) << text;
    EXPECT_EQ(SimulateFlag::from(text).cluster, "c.json") << text;
  }
  for (const char* wrong : {"", "ranks=0,cluster=c", "ranks=1x,cluster=c", "rank=1,cluster=c",
                            "cluster=", "ranks=99999999,cluster=c", "ranks=8"}) {
    EXPECT_THAT(error_of([&] { SimulateFlag::from(wrong); }),
                HasSubstr(fmt::format("--simulate: found \"{}\", expected a cluster file, or "
                                      "ranks=N,cluster=FILE with N from 1 to 16384",
                                      wrong)));
  }
  EXPECT_THAT(error_of([] { simulated({.config = "c.json", .simulate = "none.json"}); }),
              HasSubstr("--simulate: none.json cannot be read: No such file or directory"));
}

TEST(Simulation, FiguresThatContradictOrCannotBeAreRefused) {
  const auto refusal = [](const std::string& more) {
    return error_of([&] { simulate(config_of(3, 16), cluster(2, "40GB/s", more)); });
  };
  EXPECT_THAT(refusal(R"(, "peak_fp32": "1TFLOP/s")"),
              HasSubstr("c.json: peak_fp32: found 1 TFLOP/s, expected at least the 50 TFLOP/s"));
  EXPECT_THAT(refusal(R"(, "least_time": "5000d")"), HasSubstr("c.json: a step would take"));
  const std::string huge = "1" + std::string(305, '0');
  EXPECT_THAT(refusal(R"(, "least_time": ")" + huge + R"(d")"), HasSubstr("c.json: least_time"));
  EXPECT_THAT(error_of([] {
                machine_of(parse_json_text(R"({"devices": 1, "memory": "1GB",
                                               "links": {"between_switches": "1GB/s"}})",
                                           "c.json"),
                           "c.json");
              }),
              HasSubstr("c.json: links.hosts_of_switch is missing"));
}

}  // namespace
}  // namespace zero::testing
