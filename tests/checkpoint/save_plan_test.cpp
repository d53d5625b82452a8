// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/sign_of_life.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StridedRuns, RegularRunsAreOne) {
  EXPECT_THAT(strided_runs(std::vector<StateRun>{{5, 3}, {15, 3}, {25, 3}}),
              ElementsAre(StridedRun{5, 3, 10, 3}));
  // A shard cuts the first and the last row of a slice of columns.
  EXPECT_THAT(
      strided_runs(std::vector<StateRun>{{7, 1}, {15, 3}, {25, 3}, {35, 3}, {45, 2}}),
      ElementsAre(StridedRun{7, 1, 1, 1}, StridedRun{15, 3, 10, 3}, StridedRun{45, 2, 2, 1}));
  EXPECT_THAT(strided_runs(std::vector<StateRun>{{0, 4, false}, {4, 0}, {8, 4}}),
              ElementsAre(StridedRun{8, 4, 4, 1}));
}

TEST(StridedRuns, ElementsBeforeOneAreCounted) {
  const StridedRun run{5, 3, 10, 3};
  std::int64_t before = 0;
  for (std::int64_t element = 0; element < 40; ++element) {
    EXPECT_EQ(run.count_before(element), before) << element;
    if (element >= 5 && element < 35 && (element - 5) % 10 < 3) ++before;
  }
}

/// One tensor of two dimensions, its columns over the tensor axis, each slice over the shards.
struct Cut {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::vector<std::int64_t> column_ends;              ///< of each rank of the tensor axis
  std::vector<std::vector<std::int64_t>> shard_ends;  ///< per rank of that axis: of each shard

  std::int64_t count() const { return rows * columns; }
};

/// A replica of ranks (shard * tensors + tensor) and the files of one save.
struct Case {
  int shards = 1;
  int tensors = 1;
  int replicas = 1;
  std::int64_t per_round = 4;
  std::int64_t exchanged = 4;
  std::vector<Cut> cuts;
  std::int64_t head = 8;  ///< bytes before the tensors of each file
  std::size_t tensors_a_file = 2;

  int ranks() const { return shards * tensors; }
};

std::vector<std::int64_t> sorted_ends(std::int64_t total, int parts) {
  std::vector<std::int64_t> ends;
  for (int i = 1; i < parts; ++i) ends.push_back(*rc::gen::inRange<std::int64_t>(0, total + 1));
  ends.push_back(total);
  std::ranges::sort(ends);
  return ends;
}

Cut some_cut(const Case& with) {
  Cut cut;
  cut.rows = *rc::gen::element<std::int64_t>(0, 1, 2, 13, 300);
  cut.columns = *rc::gen::element<std::int64_t>(1, 2, 7, 64, 127, 1031);
  if (*rc::gen::inRange(0, 6) == 0) std::tie(cut.rows, cut.columns) = std::pair(601, 1024);
  cut.column_ends = sorted_ends(cut.columns, with.tensors);
  std::int64_t begin = 0;
  for (const std::int64_t end : cut.column_ends) {
    cut.shard_ends.push_back(sorted_ends(cut.rows * (end - begin), with.shards));
    begin = end;
  }
  return cut;
}

Case some_case() {
  Case with;
  with.shards = *rc::gen::inRange(1, 10);
  with.tensors = *rc::gen::inRange(1, 9 / with.shards + 1);
  with.replicas = *rc::gen::inRange(1, 4);
  with.per_round = *rc::gen::inRange<std::int64_t>(1, 5);
  with.exchanged = *rc::gen::inRange<std::int64_t>(1, 5);
  with.head = *rc::gen::element<std::int64_t>(8, 16, 4096, kBlockBytes + 24);
  with.tensors_a_file = *rc::gen::inRange<std::size_t>(1, 4);
  const int tensors = *rc::gen::inRange(0, 8);
  for (int i = 0; i < tensors; ++i) with.cuts.push_back(some_cut(with));
  return with;
}

std::vector<StateRun> runs_of(const Cut& cut, int shard, int tensor) {
  const auto t = static_cast<std::size_t>(tensor);
  const auto s = static_cast<std::size_t>(shard);
  const std::int64_t first = tensor == 0 ? 0 : cut.column_ends[t - 1];
  const std::int64_t width = cut.column_ends[t] - first;
  std::vector<StateRun> runs;
  const std::int64_t end = cut.shard_ends[t][s];
  for (std::int64_t local = shard == 0 ? 0 : cut.shard_ends[t][s - 1]; local < end;) {
    const std::int64_t count = std::min(end - local, width - local % width);
    runs.push_back({local / width * cut.columns + first + local % width, count});
    local += count;
  }
  return runs;
}

OwnedRuns owners_of(const Case& with) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < with.ranks(); ++rank) {
    std::vector<std::vector<StridedRun>> mine;
    for (const Cut& cut : with.cuts)
      mine.push_back(strided_runs(runs_of(cut, rank / with.tensors, rank % with.tensors)));
    texts.push_back(OwnedRuns::encode(mine));
  }
  return {texts, with.cuts.size()};
}

CheckpointLayout layout_of(const Case& with) {
  std::vector<LayoutFile> files;
  std::vector<LayoutTensor> tensors;
  for (std::size_t i = 0; i < with.cuts.size(); ++i) {
    if (i % with.tensors_a_file == 0)
      files.push_back({.name = fmt::format("file{}", i),
                       .bytes = with.head,
                       .head = std::string(static_cast<std::size_t>(with.head), 'h')});
    tensors.push_back({{.name = fmt::format("t{}", i),
                        .shape = {with.cuts[i].rows, with.cuts[i].columns},
                        .file = files.size() - 1,
                        .offset = files.back().bytes},
                       i});
    files.back().bytes += with.cuts[i].count() * 4;
  }
  files.push_back({.name = "small", .bytes = 5, .head = "small"});
  return {files, tensors};
}

std::vector<std::size_t> numbers_of(const CheckpointLayout& layout) {
  std::vector<std::size_t> numbers;
  for (const LayoutTensor& tensor : layout.tensors()) numbers.push_back(tensor.source);
  return numbers;
}

using Elements = std::vector<std::uint32_t>;

/// Neither 0 nor the same for two elements of a case.
std::uint32_t value(std::size_t tensor, std::int64_t element) {
  return static_cast<std::uint32_t>((tensor + 1) << 24) + static_cast<std::uint32_t>(element);
}

/// Which rank owns each element.
class OwnerMap {
 public:
  explicit OwnerMap(const Case& with) {
    for (const Cut& cut : with.cuts) {
      std::vector<int>& owners = owners_.emplace_back(cut.count(), -1);
      for (int rank = 0; rank < with.ranks(); ++rank) {
        for (const StateRun& run : runs_of(cut, rank / with.tensors, rank % with.tensors))
          std::fill_n(owners.begin() + run.begin, run.count, rank);
      }
    }
  }
  bool owns(int rank, const SavePlan::Part& part) const {
    const auto first = owners_[part.tensor].begin() + part.begin;
    return std::all_of(first, first + part.count, [&](int owner) { return owner == rank; });
  }

 private:
  std::vector<std::vector<int>> owners_;
};

/// The save of one replica, simulated.
class Simulation {
 public:
  Simulation(const Case& with, const SavePlan& plan) : with_(with), plan_(plan), owners_(with) {}

  /// Adds the blocks that the replica writes to `blocks`.
  void run(std::map<std::int64_t, Elements>& blocks) {
    for (std::int64_t round = 0; round < plan_.rounds(); ++round) {
      parts_.clear();
      sent_.clear();
      for (int rank = 0; rank < with_.ranks(); ++rank) {
        parts_.push_back(plan_.of(round, rank));
        sent_.push_back(pack(rank));
      }
      RC_ASSERT(plan_.exchanges(round) ==
                std::ranges::any_of(parts_, [](const auto& part) { return !part.pack.empty(); }));
      for (int rank = 0; rank < with_.ranks(); ++rank) write(rank, blocks);
    }
  }

 private:
  static void copy(const SavePlan::Part& part, Elements& to) {
    for (std::int64_t i = 0; i < part.count; ++i) {
      std::uint32_t& element = to.at(static_cast<std::size_t>(part.at + i));
      RC_ASSERT(element == 0U);
      element = value(part.tensor, part.begin + i);
    }
  }

  Elements blocks_of_zeros(std::int64_t blocks) const {
    return Elements(static_cast<std::size_t>(blocks * kBlockElements));
  }

  Elements pack(int rank) const {
    Elements buffer = blocks_of_zeros(with_.exchanged);
    for (const SavePlan::Part& part : parts_[static_cast<std::size_t>(rank)].pack) {
      RC_ASSERT(owners_.owns(rank, part));
      copy(part, buffer);
    }
    return buffer;
  }

  Elements receive(std::size_t rank) const {
    Elements buffer = blocks_of_zeros(with_.exchanged);
    for (std::size_t from = 0; from < parts_.size(); ++from) {
      const Slices::Range& sent = parts_[from].send[rank];
      const Slices::Range& received = parts_[rank].receive[from];
      RC_ASSERT(sent.count == received.count);
      RC_ASSERT(received.begin + received.count <= std::ssize(buffer));
      std::copy_n(sent_[from].begin() + sent.begin, sent.count, buffer.begin() + received.begin);
    }
    return buffer;
  }

  void write(int rank, std::map<std::int64_t, Elements>& blocks) const {
    const SavePlan::Round& part = parts_[static_cast<std::size_t>(rank)];
    RC_ASSERT(std::ssize(part.blocks) <= with_.per_round);
    Elements slot = blocks_of_zeros(with_.per_round);
    for (const SavePlan::Part& own : part.own) {
      RC_ASSERT(owners_.owns(rank, own));
      copy(own, slot);
    }
    const Elements received = receive(static_cast<std::size_t>(rank));
    for (const SavePlan::FileOffset& place : part.place) {
      for (std::int64_t i = 0; i < place.count; ++i) {
        std::uint32_t& element = slot.at(static_cast<std::size_t>(place.at + i));
        RC_ASSERT(element == 0U);
        element = received[static_cast<std::size_t>(place.from + i)];
      }
    }
    for (std::size_t i = 0; i < part.blocks.size(); ++i) {
      const auto first = slot.begin() + static_cast<std::int64_t>(i) * kBlockElements;
      RC_ASSERT(blocks.emplace(part.blocks[i], Elements(first, first + kBlockElements)).second);
      RC_ASSERT(plan_.writer(part.blocks[i]) == rank);
    }
  }

  const Case& with_;
  const SavePlan& plan_;
  OwnerMap owners_;
  std::vector<SavePlan::Round> parts_;
  std::vector<Elements> sent_;
};

/// The blocks as they must be: elements of tensors, 0 in place of heads.
std::map<std::int64_t, Elements> expected_blocks(const CheckpointLayout& layout) {
  std::map<std::int64_t, Elements> blocks;
  for (std::int64_t i = 0; i < layout.blocks().count(); ++i)
    blocks.emplace(i, Elements(kBlockElements));
  for (const LayoutTensor& tensor : layout.tensors()) {
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      const std::int64_t offset = tensor.offset + i * 4;
      const std::int64_t block = layout.blocks().number(tensor.file, offset);
      blocks.at(block)[static_cast<std::size_t>(offset % kBlockBytes / 4)] =
          value(tensor.source, i);
    }
  }
  return blocks;
}

RC_GTEST_PROP(SavePlan, EveryElementIsPlacedOnceInBlocksThatDependOnNoOwner, ()) {
  const Case with = some_case();
  const CheckpointLayout layout = layout_of(with);
  std::map<std::int64_t, Elements> blocks;
  std::int64_t rounds = -1;
  for (int replica = 0; replica < with.replicas; ++replica) {
    const SavePlan plan(layout, numbers_of(layout), owners_of(with),
                        {.replica = replica,
                         .replicas = with.replicas,
                         .per_round = with.per_round,
                         .exchanged = with.exchanged});
    if (rounds >= 0) RC_ASSERT(plan.rounds() == rounds);
    rounds = plan.rounds();
    const std::size_t before = blocks.size();
    Simulation(with, plan).run(blocks);
    const std::int64_t dealt =
        (layout.blocks().count() - replica + with.replicas - 1) / with.replicas;
    RC_ASSERT(static_cast<std::int64_t>(blocks.size() - before) == dealt);
  }
  RC_ASSERT(blocks == expected_blocks(layout));
}

/// `count` elements in one file, over two ranks cut at `cut`.
Case two_ranks(std::int64_t count, std::int64_t cut) {
  Case with;
  with.shards = 2;
  with.cuts.push_back({1, count, {count}, {{cut, count}}});
  return with;
}

TEST(SavePlan, TheOwnerOfMostElementsWritesABlockAndTheLowestOfSeveral) {
  const std::int64_t whole = 4 * kBlockElements;
  const auto writers = [](const Case& with) {
    const CheckpointLayout layout = layout_of(with);
    const SavePlan plan(layout, numbers_of(layout), owners_of(with), {});
    std::vector<int> found;
    for (std::int64_t i = 0; i < layout.blocks().count(); ++i) found.push_back(plan.writer(i));
    return found;
  };
  // The last block but one holds the two elements that the head displaced, the last no tensor.
  EXPECT_THAT(writers(two_ranks(whole, whole)), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(writers(two_ranks(whole, 0)), ElementsAre(1, 1, 1, 1, 1, 0));
  EXPECT_THAT(writers(two_ranks(whole, kBlockElements * 3 / 2 - 2)), ElementsAre(0, 0, 1, 1, 1, 0));
  EXPECT_THAT(writers(two_ranks(whole, kBlockElements * 3 / 2 - 3)), ElementsAre(0, 1, 1, 1, 1, 0));
}

TEST(SavePlan, RoundsAreCutWhereARankWouldSendTooMuch) {
  // Rank 0 owns a little less than half of every block that other ranks write.
  Case with;
  with.shards = 1;
  with.tensors = 5;
  with.head = kBlockBytes;
  with.tensors_a_file = 100;
  for (int i = 1; i < 5; ++i) {
    Cut cut{16, kBlockElements, {}, {}};
    for (int rank = 0; rank < 5; ++rank) {
      cut.column_ends.push_back(rank < i ? kBlockElements / 2 - 1 : kBlockElements);
      cut.shard_ends.push_back(
          {16 * (cut.column_ends.back() -
                 (rank == 0 ? 0 : cut.column_ends[static_cast<std::size_t>(rank) - 1]))});
    }
    with.cuts.push_back(cut);
  }
  const CheckpointLayout layout = layout_of(with);
  const SavePlan plan(layout, numbers_of(layout), owners_of(with), {.per_round = 4});
  // 64 blocks of four writers would take 4 rounds; rank 0 sends parts of 8 blocks a round.
  EXPECT_EQ(plan.rounds(), 8);
}

// A watchdog would take the plan of terabytes for an endless loop.
TEST(SavePlan, GivesSignsOfLife) {
  const CheckpointLayout layout = layout_of(two_ranks(4096 * kBlockElements, kBlockElements));
  const std::vector<std::size_t> numbers = numbers_of(layout);
  OwnedRuns owners = owners_of(two_ranks(4096 * kBlockElements, kBlockElements));
  const std::int64_t before = signs_of_life();
  const SavePlan plan(layout, numbers, std::move(owners), {.per_round = 4});
  EXPECT_GE(signs_of_life() - before, 4 + plan.rounds() / 16) << "writers, then rounds";
}

TEST(SavePlan, ElementsWithoutAnOwnerOrWithTwoAreNamed) {
  Case with = two_ranks(100, 50);
  const CheckpointLayout layout = layout_of(with);
  const std::string whole =
      OwnedRuns::encode(std::vector<std::vector<StridedRun>>{{{0, 100, 100, 1}}});
  const std::string none = OwnedRuns::encode(std::vector<std::vector<StridedRun>>{{}});
  const auto error = [&](const std::string& first, const std::string& second) {
    return error_of([&] {
      SavePlan(layout, numbers_of(layout), OwnedRuns(std::vector{first, second}, 1), {});
    });
  };
  EXPECT_EQ(error(whole, none), "no error");
  EXPECT_THAT(error(none, none), HasSubstr("file0 from offset 0: 100 elements have no owner"));
  EXPECT_THAT(error(whole, whole),
              HasSubstr("file0 from offset 0: -100 elements have no owner, or some have several"));
}

TEST(OwnedRuns, AMalformedTextNamesItsRank) {
  const std::string good = OwnedRuns::encode(std::vector<std::vector<StridedRun>>{{{0, 4, 4, 1}}});
  const auto error = [&](const std::string& second) {
    return error_of([&] { OwnedRuns(std::vector{good, second}, 1); });
  };
  EXPECT_EQ(error(good), "no error");
  EXPECT_THAT(error(good.substr(1)), HasSubstr("the runs of rank 1 are malformed"));
  EXPECT_THAT(error(good + good), HasSubstr("the runs of rank 1 are malformed: 40 bytes are left"));
  EXPECT_THAT(error(""), HasSubstr("the runs of rank 1 are malformed: 0 bytes are left"));
  EXPECT_THAT(error(OwnedRuns::encode(std::vector<std::vector<StridedRun>>{{{0, 4, 3, 1}}})),
              HasSubstr("the runs of rank 1 are malformed"));
}

}  // namespace
}  // namespace zero
