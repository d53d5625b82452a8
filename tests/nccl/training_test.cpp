// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Whole steps of training over a fake of NCCL's library: what the ranks post on it.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>

#include "tests/engine/plain.h"
#include "tests/model/training_harness.h"
#include "tests/nccl/ranks.h"

namespace zero::test {
namespace {

using ::testing::Each;

struct Steps {
  MeshShape mesh{};
  int stage = 3;
  nccl::Options nccl{};
  EngineOptions engine() const {
    EngineOptions options{.stage = stage, .compute = DType::bf16, .gradient_clipping = 1.0};
    options.limits.persistence_threshold = 0;
    options.limits.prefetch_elements = 2000;
    options.limits.reduce_bucket_elements = 600;
    return options;
  }
};

constexpr int kRanks = 4;
constexpr BatchShape kBatch{2, 7};
constexpr std::int64_t kTokens = kBatch.batch * kBatch.sequence;

void train(Communicator& world, Device& device, const Steps& run) {
  Mesh mesh(world, run.mesh);
  testing::Training training(mesh, device, run.engine(), testing::tiny_gpt2(), kBatch, 2,
                             {.sequence_parallel = true});
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::uint32_t j = 0; j < 2; ++j) {
      const auto data = static_cast<std::uint32_t>(mesh.data().rank());
      const auto batch = testing::Batch::random(kTokens, training.model.vocabulary(), 8 * j + data);
      EXPECT_GT(training.train(batch, 1.0F / kTokens), 0);
    }
    training.engine.step({.learning_rate = 1e-2});
  }
  training.engine.states().hash();
}

bool is_exchange(const std::string& call) {
  return call.starts_with("Send") || call.starts_with("Recv");
}

/// Ranks of the world by communicator, in the order that they have there.
std::map<int, std::vector<int>> members() {
  std::map<int, std::vector<int>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const fake_nccl::Call& call : fake_nccl::calls(rank)) {
      auto& those = ranks[call.communicator];
      if (those.empty() || those.back() != rank) those.push_back(rank);
    }
  }
  return ranks;
}

/// What one rank of a communicator sends to another, or receives from it.
std::vector<std::string> exchanged(int communicator, int rank, const char* kind, std::size_t peer) {
  std::vector<std::string> values;
  for (const auto& [number, text] : fake_nccl::calls(rank)) {
    const auto end = text.rfind(", ");
    if (number != communicator || !text.starts_with(kind)) continue;
    if (text.substr(end + 2) == std::to_string(peer)) values.push_back(text.substr(4, end - 4));
  }
  return values;
}

/// Carries out what the ranks posted as GPUs would, in order on each: a call once it is next on
/// every rank of its communicator, and the same there. What keeps it from going on, or nothing.
std::string stopped_by() {
  std::vector<std::deque<fake_nccl::Call>> ranks(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (auto& call : fake_nccl::calls(rank)) {
      if (is_exchange(call.text)) call.text = "an exchange";
      ranks[static_cast<std::size_t>(rank)].push_back(call);
    }
  }
  const auto next = [&](int rank) -> std::deque<fake_nccl::Call>& {
    return ranks[static_cast<std::size_t>(rank)];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& [communicator, those] : members()) {
      const auto is_next = [&, number = communicator](int rank) {
        return !next(rank).empty() && next(rank).front().communicator == number;
      };
      if (!std::ranges::all_of(those, is_next)) continue;
      const std::string text = next(those.front()).front().text;
      for (const int rank : those) {
        const std::string theirs = next(rank).front().text;
        if (theirs != text) {
          return fmt::format("rank {}: {}; rank {}: {}", those.front(), text, rank, theirs);
        }
        next(rank).pop_front();
      }
      moved = true;
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!next(rank).empty()) return fmt::format("rank {} waits: {}", rank, next(rank).front().text);
  }
  return {};
}

/// What is sent, and how much, is what is received.
void expect_matching_exchanges() {
  for (const auto& [communicator, those] : members()) {
    for (std::size_t from = 0; from < those.size(); ++from) {
      for (std::size_t to = 0; to < those.size(); ++to) {
        EXPECT_EQ(exchanged(communicator, those[from], "Send", to),
                  exchanged(communicator, those[to], "Recv", from));
      }
    }
  }
}

// NCCL's calls carry no names: ranks whose calls come in another order, or are of other sizes, hang
// or take each other's values.
TEST(NcclTraining, AllRanksOfACommunicatorPostTheSameCallsInTheSameOrder) {
  const auto check = [](const std::string& what, const Steps& run) {
    const auto body = [&](Communicator& world, Device& device) { train(world, device, run); };
    EXPECT_THAT(nccl_ranks(kRanks, body, run.nccl), Each("no error")) << what;
    EXPECT_GT(fake_nccl::calls(0).size(), 100U) << what;
    EXPECT_EQ(stopped_by(), "") << what;
    expect_matching_exchanges();
  };
  for (const int stage : {0, 1, 2, 3}) {
    check(fmt::format("stage {}", stage), {.stage = stage});
    check(fmt::format("stage {}, fast sums", stage),
          {.stage = stage, .nccl = {.sums = nccl::Sums::fast}});
    check(fmt::format("stage {}, shard x tensor", stage),
          {.mesh = {.replicate = 1, .shard = 2, .tensor = 2}, .stage = stage});
  }
  check("replicate x shard", {.mesh = {.replicate = 2, .shard = 2, .tensor = 1}});
}

/// Calls of a kind in a step of two units, of 3 million fp32 elements each, on four ranks.
std::ptrdiff_t reductions(const char* kind, nccl::Sums sums, std::int64_t bucket) {
  const auto body = [&](Communicator& world, Device& device) {
    plain::Setup setup{plain::options(2), plain::equal_units(2, 3'000'000)};
    setup.mesh = {.replicate = 1, .shard = kRanks, .tensor = 1};
    setup.engine.limits.reduce_bucket_elements = bucket;
    plain::Trainer trainer(world, device, setup);
    trainer.step();
  };
  EXPECT_THAT(nccl_ranks(kRanks, body, {.sums = sums}), Each("no error"));
  return std::ranges::count_if(fake_nccl::posted(0),
                               [&](const std::string& call) { return call.starts_with(kind); });
}

// A rank of exact sums receives at most 8 MiB in all, from three peers: 2,796,032 bytes of each in
// the first of two pieces.
TEST(NcclTraining, FastSumsOfAUnitAreOneReduceScatterUnlessABucketCuts) {
  constexpr std::int64_t kWhole = std::int64_t{1} << 40;
  using enum nccl::Sums;
  EXPECT_EQ(reductions("Send 2796032 ", exact, kWhole), 2 * (kRanks - 1));
  EXPECT_EQ(reductions("ReduceScatter ", fast, kWhole), 2);
  EXPECT_EQ(reductions("Reduce ", fast, kWhole), 0);
  EXPECT_EQ(reductions("ReduceScatter ", fast, 2'000'000), 0);
  EXPECT_EQ(reductions("Reduce ", fast, 2'000'000), 2 * 2 * kRanks);
}

TEST(NcclTraining, CallsInAnotherOrderAreFound) {
  nccl_ranks(2, [](Communicator& world, Device& device) {
    const Buffer values = device.allocate(8, DType::fp32, MemoryClass::other, "values");
    const std::int64_t first = world.rank() == 0 ? 4 : 8;
    for (const std::int64_t count : {first, 12 - first}) {
      world.all_reduce(values.view().slice(0, count), ReduceOp::sum, device.communication(),
                       {"x", {}});
    }
  });
  EXPECT_THAT(stopped_by(), ::testing::HasSubstr("rank 0: "));
}

}  // namespace
}  // namespace zero::test
