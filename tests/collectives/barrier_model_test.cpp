// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/barrier_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/host/barrier.h"

namespace zero::test {
namespace {

using model::Kind;
using model::Mutation;
using model::Word;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 3;  // at most

/// The words of host::Barrier in the model, and what it protects: a header per rank for each of two
/// calls in turn, and the reason of a failure.
struct Words {
  model::Replay* replay;
  int sleeps;  // that this rank may still try

  static std::vector<std::string> names() {
    std::vector<std::string> names{"sleepers", "wakes", "failed", "reason"};
    names.resize(4 + kRanks, "arrivals");
    names.resize(4 + 2 * kRanks, "header");
    return names;
  }
  Word sleepers() const { return {*replay, 0}; }
  Word wakes() const { return {*replay, 1}; }
  Word failed() const { return {*replay, 2}; }
  Word reason() const { return {*replay, 3}; }
  Word arrivals(int rank) const { return {*replay, 4 + rank}; }
  Word header(int rank) const { return {*replay, 4 + kRanks + rank}; }

  // A rank may wake for nothing and sleep again, any number of times.
  void wait(const Word& word, std::uint32_t value, std::chrono::nanoseconds) {
    if (sleeps-- == 0) throw model::Pruned();
    word.wait(value);
  }
  static void wake_all(const Word& word) { word.wake_all(); }
};

using Barrier = host::Barrier<Words>;

constexpr auto kRelaxed = std::memory_order_relaxed;

void expect_in_model(bool holds, const std::string& what) {
  if (!holds) throw what;
}

// As Group::pass_barrier(): looks, then sleeps; the time that a real rank sleeps at most never
// comes.
void pass_barrier(Barrier& barrier) {
  barrier.arrive();
  while (!barrier.all_arrived()) {
    if (barrier.failed()) throw barrier.words().reason().load(kRelaxed);
    barrier.sleep({});
  }
}

// Every rank writes its header, all arrive, each reads all headers; `rounds` times.
model::Program rounds_of(int ranks, std::uint32_t rounds, int sleeps) {
  const auto body = [=](int rank, model::Replay& replay) {
    Barrier barrier({&replay, sleeps}, rank, ranks);
    const Words& words = barrier.words();
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      words.header(rank).store(round, kRelaxed);
      pass_barrier(barrier);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        expect_in_model(words.header(peer).load(kRelaxed) >= round,
                        "a peer that arrived has not written its header");
      }
    }
  };
  return {.ranks = ranks, .words = Words::names(), .body = body};
}

// Every rank arrives once.
model::Program one_round(int ranks) {
  constexpr int kSleeps = 2;
  const auto body = [=](int rank, model::Replay& replay) {
    Barrier barrier({&replay, kSleeps}, rank, ranks);
    pass_barrier(barrier);
  };
  return {.ranks = ranks, .words = Words::names(), .body = body};
}

// The first rank fails in place of coming; the others hear why.
model::Program failure(int ranks, int sleeps) {
  const auto body = [=](int rank, model::Replay& replay) {
    constexpr std::uint32_t kReason = 7;
    Barrier barrier({&replay, sleeps}, rank, ranks);
    if (rank == 0) {
      return barrier.fail([&] { barrier.words().reason().store(kReason, kRelaxed); });
    }
    try {
      pass_barrier(barrier);
    } catch (const std::uint32_t reason) {
      expect_in_model(reason == kReason, "a failure is heard before its reason is there");
      return;
    }
    expect_in_model(false, "a barrier passed without a rank");
  };
  return {.ranks = ranks, .words = Words::names(), .body = body};
}

TEST(BarrierModel, LeavesNobodyAsleep) {
  EXPECT_EQ(model::explore(rounds_of(2, 1, 3)).fault, "");
  EXPECT_EQ(model::explore(rounds_of(2, 2, 2)).fault, "");
  EXPECT_EQ(model::explore(one_round(3)).fault, "");
}

TEST(BarrierModel, TellsAFailureToAllWhoWait) {
  EXPECT_EQ(model::explore(failure(2, 3)).fault, "");
}

// The fault that some program shows when one order of the protocol is weaker.
std::string fault_with(const Mutation& mutation) {
  for (model::Program program :
       {failure(2, 2), rounds_of(2, 1, 2), rounds_of(2, 2, 2), one_round(3)}) {
    program.mutation = mutation;
    if (auto result = model::explore(program); !result.fault.empty()) return result.fault;
  }
  return "none";
}

TEST(BarrierModel, NeedsOneOrderOfArrivalsAndSleepers) {
  constexpr auto kAsleep = "all who are left sleep, and nobody wakes";
  constexpr auto kRelease = std::memory_order_release;
  constexpr auto kAcquire = std::memory_order_acquire;
  EXPECT_THAT(fault_with({"arrivals", Kind::store, kRelease}), StartsWith(kAsleep));
  EXPECT_THAT(fault_with({"arrivals", Kind::load, kAcquire}), StartsWith(kAsleep));
  EXPECT_THAT(fault_with({"sleepers", Kind::load, kAcquire}), StartsWith(kAsleep));
  EXPECT_THAT(fault_with({"sleepers", Kind::load, kRelaxed}), StartsWith(kAsleep));
  EXPECT_THAT(fault_with({"sleepers", Kind::add, std::memory_order_acq_rel}), StartsWith(kAsleep));
  EXPECT_THAT(fault_with({"sleepers", Kind::add, kRelaxed}), StartsWith(kAsleep));
}

TEST(BarrierModel, NeedsEveryOtherOrderToo) {
  EXPECT_THAT(fault_with({"arrivals", Kind::store, kRelaxed}),
              HasSubstr("has not written its header"));
  EXPECT_THAT(fault_with({"arrivals", Kind::load, kRelaxed}),
              HasSubstr("has not written its header"));
  EXPECT_THAT(fault_with({"failed", Kind::store, kRelaxed}), HasSubstr("before its reason"));
  EXPECT_THAT(fault_with({"failed", Kind::load, kRelaxed}), HasSubstr("before its reason"));
  EXPECT_THAT(fault_with({"wakes", Kind::add, kRelaxed}), StartsWith("all who are left sleep"));
  EXPECT_THAT(fault_with({"wakes", Kind::load, kRelaxed}), StartsWith("all who are left sleep"));
}

// What the model takes for possible, by the classic examples.
model::Program two_words(std::memory_order stores, std::memory_order loads) {
  const auto body = [=](int rank, model::Replay& replay) {
    const Word mine(replay, rank);
    const Word theirs(replay, 1 - rank);
    const Word both(replay, 2);
    mine.store(1, stores);
    if (theirs.load(loads) == 0 && both.fetch_add(1, kRelaxed) == 1) {
      throw std::string("neither sees the other's store");
    }
  };
  return {.ranks = 2, .words = {"a", "b", "both"}, .body = body};
}

TEST(BarrierModel, LetsStoresBeLateUnlessAllAreInOneOrder) {
  constexpr auto kInOrder = std::memory_order_seq_cst;
  EXPECT_EQ(model::explore(two_words(kInOrder, kInOrder)).fault, "");
  for (const auto& [stores, loads] :
       std::vector{std::pair{std::memory_order_release, std::memory_order_acquire},
                   std::pair{std::memory_order_release, kInOrder},
                   std::pair{kInOrder, std::memory_order_acquire}}) {
    EXPECT_THAT(model::explore(two_words(stores, loads)).fault, StartsWith("rank ")) << "weak";
  }
}

model::Program message(std::memory_order stores, std::memory_order loads) {
  const auto body = [=](int rank, model::Replay& replay) {
    const Word data(replay, 0);
    const Word flag(replay, 1);
    if (rank == 0) {
      data.store(1, kRelaxed);
      return flag.store(1, stores);
    }
    if (flag.load(loads) == 1 && data.load(kRelaxed) == 0) throw std::string("stale");
  };
  return {.ranks = 2, .words = {"data", "flag"}, .body = body};
}

TEST(BarrierModel, PassesMessagesByReleaseAndAcquireAlone) {
  constexpr auto kRelease = std::memory_order_release;
  constexpr auto kAcquire = std::memory_order_acquire;
  EXPECT_EQ(model::explore(message(kRelease, kAcquire)).fault, "");
  EXPECT_THAT(model::explore(message(kRelaxed, kAcquire)).fault, HasSubstr("stale"));
  EXPECT_THAT(model::explore(message(kRelease, kRelaxed)).fault, HasSubstr("stale"));
}

}  // namespace
}  // namespace zero::test
