// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <utility>
#include <vector>

#include "tests/cuda/audited_training.h"
#include "tests/engine/wait_sites.h"
#include "tests/nccl/fake_nccl.h"

// The audit of whole steps whose ranks have a GPU each and talk through NCCL's fake: a collective
// reads and writes a rank's memory in the order of the stream it was given, as NCCL's kernels do.
namespace zero::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AuditedRun run_of(int stage, nccl::Sums sums = nccl::Sums::exact) {
  return {.engine = audited_options(stage), .nccl = nccl::Options{.sums = sums}};
}

/// Steps in which NCCL's calls are found to have been made.
cuda::emulated::WorkGraph graph_with_calls(const AuditedRun& run) {
  test::fake_nccl::reset();
  auto graph = graph_of(run);
  EXPECT_GT(test::fake_nccl::posted(0).size(), 20U);
  EXPECT_EQ(test::fake_nccl::alive(), 0);
  return graph;
}

TEST(NcclAudit, EveryAccessIsOrdered) {
  using enum nccl::Sums;
  for (const auto& [stage, sums] :
       std::vector<std::pair<int, nccl::Sums>>{{0, fast}, {1, exact}, {3, exact}, {3, fast}}) {
    EXPECT_THAT(races(graph_with_calls(run_of(stage, sums))), IsEmpty()) << "stage " << stage;
  }
}

TEST(NcclAudit, EveryAccessIsOrderedAlongSeveralAxes) {
  AuditedRun run = run_of(3);
  run.ranks = 4;
  run.mesh = {.replicate = 1, .shard = 2, .tensor = 2};
  run.tensor = {.sequence_parallel = true, .chunks = 3};
  run.end = AuditedRun::End::state;
  EXPECT_THAT(races(graph_with_calls(run)), IsEmpty());
  run.mesh = {.replicate = 2, .shard = 2, .tensor = 1};
  run.engine.replica_check_every = 1;
  EXPECT_THAT(races(graph_with_calls(run)), IsEmpty());
}

TEST(NcclAudit, EveryAccessToValuesInHostMemoryIsOrdered) {
  AuditedRun run = run_of(3);
  run.engine.tiers.optimizer = run.engine.tiers.parameters = Tier::host;
  run.engine.tiers.windows = {.buffers = 2, .buffer_elements = StateWindowOptions::kGrain};
  EXPECT_THAT(races(graph_with_calls(run)), IsEmpty());
}

class NcclLeftOutWait : public ::testing::TestWithParam<WaitSite> {};

/// Everything runs as soon as it is queued, so that all values are right.
TEST_P(NcclLeftOutWait, IsFoundThoughNothingWentWrong) {
  const WaitSite site = GetParam();
  const bool of_whole_gradients =
      site == WaitSite::publish_before_use || site == WaitSite::reduce_before_rewrite;
  AuditedRun run = run_of(of_whole_gradients ? 1 : 3);
  run.order = cuda::emulated::Settings::Order::prompt;
  run.engine.limits.prefetch_elements = 2000;
  run.skipped = site;
  run.copies_parameters = site == WaitSite::read_before_update;
  const auto found = races(graph_with_calls(run));
  // What NCCL reads or writes of a rank's memory, or what its values are summed by; or what a
  // reader of the states copies.
  EXPECT_THAT(found,
              Contains(AnyOf(HasSubstr(" reads\" (number"), HasSubstr(" writes\" (number"),
                             HasSubstr("\"tree_reduce\" (number"), HasSubstr("'s optimizer/"))));
}

INSTANTIATE_TEST_SUITE_P(Sites, NcclLeftOutWait, ::testing::ValuesIn(kWaitSitesOfGpus),
                         [](const auto& site) { return std::string(name_of(site.param)); });

}  // namespace
}  // namespace zero::testing
