// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cuda/audited_training.h"
#include "tests/cuda/emulator/dependences.h"
#include "tests/engine/wait_sites.h"

// Whole steps of training on the emulated GPU. What touches a byte that something else touches, one
// of them writing, must be ordered behind it: by what CUDA promises, not by how it happened to run.
namespace zero::testing {
namespace {

namespace emulated = cuda::emulated;
using emulated::Settings;
using emulated::WorkGraph;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Reads of what nothing has written: values that nobody computed, or writes that are not told (by
/// sources that CMakeLists.txt does not have in its list), which would be taken for innocent.
std::vector<std::string> reads_of_nothing(const WorkGraph& graph) {
  std::vector<std::string> found;
  for (const emulated::Unwritten& one : emulated::unwritten(graph)) {
    found.push_back(emulated::describe(graph, one));
  }
  return found;
}

class Audit : public ::testing::TestWithParam<int> {};

TEST_P(Audit, EveryAccessIsOrdered) {
  for (const DecoderShape& model : {tiny_gpt2(), tiny_llama()}) {
    for (const int ranks : {1, 2, 4}) {
      const AuditedRun run{.model = model, .ranks = ranks, .engine = audited_options(GetParam())};
      const WorkGraph graph = graph_of(run);
      EXPECT_THAT(reads_of_nothing(graph), IsEmpty());
      EXPECT_THAT(races(graph), IsEmpty()) << model.family->name << ", " << ranks << " ranks";
    }
  }
}

/// A wait that is neither needed nor implied by others would be for nothing, or for something that
/// the audit does not see. Those of the engine all have their reason in this very step. Those of a
/// meeting of ranks hold for whatever a caller does next: Meetings, below, has them all needed.
TEST_P(Audit, EveryWaitOfTheEngineIsNeededOrImplied) {
  AuditedRun run{.engine = audited_options(GetParam())};
  // All gathered at a micro-batch's begin: of fewer, the last update's wait orders no gather, and
  // the waits of its unit's reduction, which do, come later.
  run.engine.limits.prefetch_elements = 1 << 20;
  const WorkGraph graph = graph_of(run);
  const emulated::WaitUses uses = emulated::wait_uses(graph, emulated::dependences(graph));
  EXPECT_GT(uses.needed.size(), 50U);
  std::vector<std::string> idle;
  for (const std::int64_t wait : uses.idle) {
    const std::string& waiting = graph.chains[graph.node(wait).chain];
    const std::string& awaited = graph.chains[graph.node(graph.node(wait).awaited).chain];
    if (owner_of(waiting) == owner_of(awaited)) idle.push_back(waiting + " waits for " + awaited);
  }
  EXPECT_THAT(idle, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Stages, Audit, ::testing::Values(0, 1, 2, 3));

TEST(Audit, EveryAccessIsOrderedHoweverStage3IsCarriedOut) {
  const auto check = [](const char* what, const auto& change) {
    AuditedRun run{.engine = audited_options(3)};
    change(run);
    EXPECT_THAT(races(graph_of(run)), IsEmpty()) << what;
  };
  check("fp32", [](AuditedRun& run) { run.engine.compute = DType::fp32; });
  check("five micro-batches", [](AuditedRun& run) { run.accumulation = 5; });
  check("three ranks", [](AuditedRun& run) { run.ranks = 3; });
  check("fp32 gradients", [](AuditedRun& run) { run.engine.gradient = DType::fp32; });
  check("overlap off", [](AuditedRun& run) { run.engine.overlap = false; });
  check("small buckets", [](AuditedRun& run) { run.engine.limits.reduce_bucket_elements = 100; });
  check("no prefetch", [](AuditedRun& run) { run.engine.limits.prefetch_elements = 0; });
  check("some prefetch", [](AuditedRun& run) { run.engine.limits.prefetch_elements = 2000; });
  check("one unit at once", [](AuditedRun& run) { run.engine.limits.live_elements = 1; });
  check("poisoned windows", [](AuditedRun& run) { run.engine.checked = true; });
  check("evaluated between steps",
        [](AuditedRun& run) { run.between = AuditedRun::Between::evaluation; });
  check("tied head, biases", [](AuditedRun& run) { run.model = tiny_qwen2(); });
  check("norms of heads", [](AuditedRun& run) { run.model = tiny_qwen3(); });
  check("windows and scales", [](AuditedRun& run) { run.model = tiny_scaled(); });
  check("norms of branches, local layers", [](AuditedRun& run) { run.model = tiny_gemma3(); });
  check("kept units", [](AuditedRun& run) { run.engine.limits.reuse_distance = 1 << 20; });
  check("whole parameters",
        [](AuditedRun& run) { run.engine.limits.persistence_threshold = 1 << 20; });
  check("state read, written and hashed",
        [](AuditedRun& run) { run.end = AuditedRun::End::state; });
}

AuditedRun with_states_in_host_memory(int stage) {
  AuditedRun run{.engine = audited_options(stage)};
  run.engine.tiers.optimizer = Tier::host;
  run.engine.tiers.windows = {.buffers = 2, .buffer_elements = StateWindowOptions::kGrain};
  return run;
}

TEST(Audit, EveryAccessToStatesInHostMemoryIsOrdered) {
  for (const int stage : {0, 1, 3}) {
    AuditedRun run = with_states_in_host_memory(stage);
    run.copies_parameters = true;
    const WorkGraph graph = graph_of(run);
    EXPECT_THAT(reads_of_nothing(graph), IsEmpty());
    EXPECT_THAT(races(graph), IsEmpty()) << "stage " << stage;
  }
  for (const WaitSite site : {WaitSite::states_before_update, WaitSite::update_before_write}) {
    AuditedRun run = with_states_in_host_memory(3);
    run.order = Settings::Order::prompt;
    run.skipped = site;
    EXPECT_THAT(races(graph_of(run)), Contains(HasSubstr("'s staging/"))) << name_of(site);
  }
}

TEST(Audit, EveryAccessToShardsInHostMemoryIsOrdered) {
  for (const Tier optimizer : {Tier::device, Tier::host}) {
    AuditedRun run = with_states_in_host_memory(3);
    run.engine.tiers.optimizer = optimizer;
    run.engine.tiers.parameters = Tier::host;
    run.copies_parameters = true;
    const WorkGraph graph = graph_of(run);
    EXPECT_THAT(reads_of_nothing(graph), IsEmpty());
    EXPECT_THAT(races(graph), IsEmpty());
    run.copies_parameters = false;
    run.between = AuditedRun::Between::evaluation;
    EXPECT_THAT(races(graph_of(run)), IsEmpty()) << "evaluated between steps";
    for (const WaitSite site : {WaitSite::fetch_before_gather, WaitSite::gather_before_fetch}) {
      AuditedRun without = with_states_in_host_memory(3);
      without.engine.tiers.optimizer = optimizer;
      without.engine.tiers.parameters = Tier::host;
      without.order = Settings::Order::prompt;
      without.skipped = site;
      EXPECT_THAT(races(graph_of(without)), Contains(HasSubstr("'s staging/"))) << name_of(site);
    }
  }
}

/// Waits of a rank for its own streams that are neither needed nor implied.
std::size_t idle_waits(const WorkGraph& graph) {
  const emulated::WaitUses uses = emulated::wait_uses(graph, emulated::dependences(graph));
  return static_cast<std::size_t>(std::ranges::count_if(uses.idle, [&](std::int64_t wait) {
    const std::string& waiting = graph.chains[graph.node(wait).chain];
    const std::string& awaited = graph.chains[graph.node(graph.node(wait).awaited).chain];
    return owner_of(waiting) == owner_of(awaited);
  }));
}

// A wait of theirs that is needed would be a race if it were left out.
TEST(Audit, EveryAccessToKeptInputsInHostMemoryIsOrderedAndEachWaitIsNeededOrImplied) {
  constexpr std::int64_t kLayers = 5;
  for (const RecomputePlan& plan : {RecomputePlan::full(kLayers), RecomputePlan::full(kLayers, 2),
                                    RecomputePlan::grouped(kLayers, 3)}) {
    AuditedRun run{
        .model = tiny_gpt2({{"layers", kLayers}}), .recompute = plan, .engine = audited_options(3)};
    run.engine.limits.prefetch_elements = 1 << 20;  // as in EveryWaitOfTheEngineIsNeededOrImplied
    const std::size_t idle = idle_waits(graph_of(run));
    run.recompute.inputs_on_host = true;
    const WorkGraph graph = graph_of(run);
    EXPECT_THAT(reads_of_nothing(graph), IsEmpty());
    EXPECT_THAT(races(graph), IsEmpty()) << plan.text();
    EXPECT_EQ(idle_waits(graph), idle) << plan.text();
    run.between = AuditedRun::Between::evaluation;
    EXPECT_THAT(races(graph_of(run)), IsEmpty()) << "evaluated between steps";
  }
}

TEST(Audit, EveryAccessIsOrderedAlongSeveralAxes) {
  const auto check = [](const char* what, const AuditedRun& run) {
    EXPECT_THAT(races(graph_of(run)), IsEmpty()) << what;
  };
  const TensorOptions own_rows{.sequence_parallel = true, .chunks = 3};
  AuditedRun run{.ranks = 4, .engine = audited_options(3)};
  run.mesh = {.replicate = 1, .shard = 2, .tensor = 2};
  check("shard x tensor", run);
  run.tensor = own_rows;
  check("shard x tensor, own rows", run);
  run.model = tiny_llama();
  check("shard x tensor, own rows, llama", run);
  run.engine.stage = 2;
  check("shard x tensor, own rows, llama, stage 2", run);
  run.engine.stage = 3;
  run.mesh = {.replicate = 2, .shard = 2, .tensor = 1};
  run.engine.replica_check_every = 1;
  check("replicate x shard, compared", run);
  run.engine.replica_check_every = 0;
  run.mesh = {.replicate = 1, .shard = 4, .tensor = 1};
  run.engine = audited_options(1);
  run.engine.reduction = ReductionPolicy::boundary;
  check("reduced at the boundary", run);
  for (const int stage : {0, 3}) {
    run.engine = audited_options(stage);
    run.copies_parameters = true;
    check("parameters copied under every step", run);
  }
}

TEST(Audit, TheOrderInWhichItRanMakesNoDifference) {
  AuditedRun run{.engine = audited_options(3)};
  const WorkGraph expected = graph_of(run);
  for (const auto order : {Settings::Order::seeded, Settings::Order::prompt}) {
    run.order = order;
    const WorkGraph graph = graph_of(run);
    EXPECT_EQ(summary_of(graph), summary_of(expected));
    EXPECT_THAT(races(graph), IsEmpty());
    EXPECT_EQ(emulated::dependences(graph).size(), emulated::dependences(expected).size());
  }
}

class LeftOutWait : public ::testing::TestWithParam<WaitSite> {};

/// Everything runs as soon as it is queued, so that all values are right.
TEST_P(LeftOutWait, IsFoundThoughNothingWentWrong) {
  std::vector<std::string> found;
  for (const int stage : {3, 1}) {
    AuditedRun run{.engine = audited_options(stage), .order = Settings::Order::prompt};
    run.engine.limits.prefetch_elements = 2000;
    run.skipped = GetParam();
    run.copies_parameters = GetParam() == WaitSite::read_before_update;
    if (found.empty()) found = races(graph_of(run));
  }
  EXPECT_THAT(found, Contains(AnyOf(HasSubstr("'s parameters/"), HasSubstr("'s gradients/"),
                                    HasSubstr("'s gathered/"), HasSubstr("'s optimizer/"))));
}

INSTANTIATE_TEST_SUITE_P(Sites, LeftOutWait, ::testing::ValuesIn(kWaitSitesOfGpus),
                         [](const auto& site) { return std::string(name_of(site.param)); });

/// A rank's part of a test of meetings: buffers that are written before a collective and again
/// behind it.
using Meeting = std::function<void(Communicator&, Device&, View mine, View full)>;

WorkGraph graph_of_meeting(int ranks, const Meeting& meeting) {
  emulated::reset({.recording = Settings::Recording::on});
  local::run(ranks, [&](Communicator& communicator) {
    emulated::name_thread(fmt::format("rank {}", communicator.rank()));
    const auto device = cuda::open();
    const auto allocate = [&](std::int64_t count) {
      return device->allocate(count, DType::fp32, MemoryClass::other, "values");
    };
    const Buffer mine = allocate(32);
    const Buffer full = allocate(std::int64_t{32} * ranks);
    const auto fill = [&] {
      device->kernels().zero(device->communication(), mine.view());
      device->kernels().zero(device->communication(), full.view());
    };
    fill();
    meeting(communicator, *device, mine.view(), full.view());
    fill();
    device->communication().synchronize();
  });
  WorkGraph graph = emulated::graph();
  emulated::reset();
  return graph;
}

TEST(Meetings, WaitForNothingThatTheirBuffersDoNotNeed) {
  const auto check = [](const char* what, const Meeting& meeting) {
    for (const int ranks : {2, 3}) {
      const WorkGraph graph = graph_of_meeting(ranks, meeting);
      EXPECT_THAT(races(graph), IsEmpty()) << what;
      const emulated::WaitUses uses = emulated::wait_uses(graph, emulated::dependences(graph));
      EXPECT_GT(uses.needed.size(), 0U) << what;
      EXPECT_THAT(uses.idle, IsEmpty()) << what << ", " << ranks << " ranks";
    }
  };
  check("all_gather", [](Communicator& ranks, Device& device, View mine, View full) {
    ranks.all_gather(mine, Slices::even(full, ranks.size()), device.communication(), {"x", {}});
  });
  check("reduce_scatter", [](Communicator& ranks, Device& device, View mine, View full) {
    const ReduceEpilogue epilogue{.addends = {}, .destination = mine, .norm = nullptr};
    ranks.reduce_scatter(Slices::even(full, ranks.size()), epilogue, {}, device.communication(),
                         {"x", {}});
  });
  check("all_reduce", [](Communicator& ranks, Device& device, View, View full) {
    ranks.all_reduce(full, ReduceOp::sum, device.communication(), {"x", {}});
  });
  check("all_to_all", [](Communicator& ranks, Device& device, View mine, View full) {
    const View part = mine.slice(0, mine.count() / ranks.size() * ranks.size());
    const View to = full.slice(0, part.count());
    ranks.all_to_all(Slices::even(part, ranks.size()), Slices::even(to, ranks.size()),
                     device.communication(), {"x", {}});
  });
}

}  // namespace
}  // namespace zero::testing
