// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "launch/data/data_order.h"
#include "launch/data/token_file.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/device/calls_to_disk.h"
#include "tests/errors.h"
#include "tests/launch/written_tokens.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenFile, GivesBackWhatWasWritten) {
  const Scratch folder;
  const TokenFile small(write_tokens(folder, "a.bin", {1, 2, 65535}));
  EXPECT_EQ(small.count(), 3);
  EXPECT_EQ(small.at(2), 65535U);
  EXPECT_EQ(small.file_bytes(), 1024 + 6);
  const TokenFile large(write_tokens(folder, "b.bin", {7, 100000}, 4));
  EXPECT_EQ(large.token_bytes(), 4);
  EXPECT_EQ(large.at(1), 100000U);
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.bin.tmp")));
  EXPECT_NE(small.fingerprint(), large.fingerprint());
}

// A rank reads the tokens of a micro-batch in the middle of a step, while others wait for it.
TEST(TokenFile, IsReadByCallsToTheDisk) {
  const Scratch folder;
  const std::string path = write_tokens(folder, "a.bin", {1, 2, 65535});
  EXPECT_THAT(counted_calls({SYS_pread64}, [&] { EXPECT_EQ(TokenFile(path).at(2), 65535U); }),
              ElementsAre(SYS_pread64));
}

TEST(TokenFile, IsNotThereBeforeCommit) {
  const Scratch folder;
  { TokenFileWriter writer(folder.path("a.bin"), 2); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(
      error_of([&] { TokenFileWriter(folder.path("none/a.bin"), 2); }),
      AllOf(HasSubstr("none/a.bin.tmp: cannot open"), HasSubstr("give a folder you may write to")));
}

TEST(TokenFile, AFullDiskIsNamedAndNothingStays) {
  for (const std::string call : {"create", "write", "sync", "rename"}) {
    const Scratch folder;
    Faults faults("No space left on device");
    faults.fail_at(call, 0);
    HookedDisk disk(std::ref(faults));
    const std::vector<std::uint32_t> tokens(1000, 7);
    EXPECT_THAT(error_of([&] {
                  TokenFileWriter writer(folder.path("a.bin"), 2, disk);
                  writer.write(tokens);
                  writer.finish();
                  writer.commit();
                }),
                AllOf(HasSubstr("a.bin"), HasSubstr("No space left on device")))
        << call;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << call;
  }
}

TEST(TokenFile, BadFilesAreNamedWithWhatWasFoundAndExpected) {
  const Scratch folder;
  EXPECT_THAT(
      error_of([&] { TokenFile(folder.path("none.bin")); }),
      HasSubstr("none.bin: cannot open for reading: No such file or directory; data.* takes token "
                "files, which zero_prepare makes"));
  EXPECT_THAT(error_of([&] { TokenFile(folder.path()); }),
              HasSubstr("is not a regular file; data.* takes token files"));
  EXPECT_THAT(error_of([&] { TokenFile(folder.write("short.bin", "abc")); }),
              HasSubstr("has 3 bytes, expected at least the header's 1024"));
  EXPECT_THAT(error_of([&] {
                TokenFile(folder.write("lfs.bin", "version https://git-lfs.github.com/spec/v1\n"));
              }),
              AllOf(HasSubstr("lfs.bin: is a Git LFS pointer"), HasSubstr("run git lfs pull")));
  EXPECT_THAT(error_of([&] { TokenFile(folder.write("text.bin", std::string(2000, 'a'))); }),
              HasSubstr("its first number is 1633771873, expected the magic 20240520"));
  write_tokens(folder, "a.bin", counted(0, 100));
  const std::string whole = folder.read("a.bin");
  EXPECT_THAT(
      error_of([&] { TokenFile(folder.write("cut.bin", whole.substr(0, 1200))); }),
      AllOf(HasSubstr("has 1200 bytes, expected 1224 for the 100 tokens"), HasSubstr("truncated")));
  EXPECT_THAT(error_of([&] { TokenFile(folder.write("more.bin", whole + "x")); }),
              HasSubstr("extended"));
  std::string version = whole;
  version[4] = 9;
  EXPECT_THAT(error_of([&] { TokenFile(folder.write("version.bin", version)); }),
              HasSubstr("format version 9"));
  const auto with_magic = [&](std::int32_t magic) {
    std::string other = whole;
    std::memcpy(other.data(), &magic, sizeof(magic));
    return folder.write("magic.bin", other);
  };
  EXPECT_THAT(error_of([&] { TokenFile(with_magic(20240801)); }),
              HasSubstr("format version 1, expected 7 (uint32 tokens) behind the magic 20240801"));
  EXPECT_THAT(error_of([&] { TokenFile(with_magic(20240522)); }),
              HasSubstr("is an evaluation file of llm.c"));
  std::string negative = whole;
  negative[11] = static_cast<char>(0x80);
  EXPECT_THAT(error_of([&] { TokenFile(folder.write("negative.bin", negative)); }),
              HasSubstr("counts -2147483548 tokens"));
}

TEST(TokenStream, ShardsAreOneStream) {
  const Scratch folder;
  const TokenStream stream({write_tokens(folder, "a.bin", counted(0, 5)),
                            write_tokens(folder, "b.bin", {}),
                            write_tokens(folder, "c.bin", counted(5, 14))});
  EXPECT_EQ(stream.count(), 14);
  EXPECT_EQ(stream.sequences(4), 3);
  EXPECT_EQ(stream.sequences(13), 1);
  EXPECT_EQ(stream.sequences(14), 0);
  std::vector<std::int32_t> inputs(4), targets(4);
  stream.sequence(0, 256, inputs, targets);
  EXPECT_THAT(inputs, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(targets, ElementsAre(1, 2, 3, 4));
  stream.sequence(1, 256, inputs, targets);
  EXPECT_THAT(inputs, ElementsAre(4, 5, 6, 7));
  stream.sequence(2, 256, inputs, targets);
  EXPECT_THAT(targets, ElementsAre(9, 10, 11, 12));
  EXPECT_THAT(error_of([&] { stream.sequence(3, 256, inputs, targets); }),
              HasSubstr("sequence 3 of 3"));
}

TEST(TokenStream, TokensBeyondTheVocabularyAreNamed) {
  const Scratch folder;
  const TokenStream stream(
      {write_tokens(folder, "a.bin", {1, 2}), write_tokens(folder, "b.bin", {3, 300, 4})});
  std::vector<std::int32_t> inputs(4), targets(4);
  const auto named = AllOf(HasSubstr("b.bin: token 1 has id 300, but model.vocabulary is 256"));
  EXPECT_THAT(error_of([&] { stream.sequence(0, 256, inputs, targets); }), named);
  EXPECT_THAT(error_of([&] { stream.check_tokens(0, 5, 256); }), named);
  EXPECT_THAT(error_of([&] { stream.check_tokens(3, 4, 256); }), named);
  EXPECT_EQ(error_of([&] { stream.check_tokens(0, 3, 256); }), "no error");
  EXPECT_EQ(error_of([&] { stream.check_tokens(0, 5, 301); }), "no error");
}

TEST(Permutation, VisitsEveryIndexOnce) {
  for (const std::int64_t count : {1, 2, 3, 7, 64, 100, 1000, 4097}) {
    const Permutation permutation(count, 1, 0);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = permutation(i);
      EXPECT_TRUE(value >= 0 && value < count);
      seen.insert(value);
    }
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), count);
  }
  EXPECT_THAT(error_of([] { Permutation(0, 1, 0); }), HasSubstr("cannot permute 0"));
  EXPECT_THAT(error_of([] { Permutation(3, 1, 0)(3); }), HasSubstr("outside a permutation of 3"));
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const auto take = [](std::uint64_t seed, std::uint64_t epoch) {
    const Permutation permutation(1000, seed, epoch);
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < 1000; ++i) values.push_back(permutation(i));
    return values;
  };
  EXPECT_EQ(take(1, 0), take(1, 0));
  EXPECT_NE(take(1, 0), take(2, 0));
  EXPECT_NE(take(1, 0), take(1, 1));
  const auto values = take(1, 0);
  int in_place = 0;
  for (std::int64_t i = 0; i < 1000; ++i)
    in_place += values[static_cast<std::size_t>(i)] == i ? 1 : 0;
  EXPECT_LT(in_place, 10);
}

TEST(DataOrder, FollowsTheClosedForm) {
  const DataOrder order{.sequences = 10, .micro_batches = 4, .rows = 2};
  for (std::int64_t step = 0; step < 5; ++step) {
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t row = 0; row < 2; ++row)
        EXPECT_EQ(order.sequence(step, i, row), ((step * 4 + i) * 2 + row) % 10);
    }
  }
}

TEST(DataOrder, GoesOnBehindWhatWasReadInStepsOfAnotherBatch) {
  const DataOrder order{
      .sequences = 100, .micro_batches = 4, .rows = 4, .from_step = 6, .from = 48};
  EXPECT_EQ(order.consumed(6), 48);
  EXPECT_THAT(order.sequences_of(6, 0), ElementsAre(48, 49, 50, 51));
  EXPECT_THAT(order.sequences_of(6, 3), ElementsAre(60, 61, 62, 63));
  EXPECT_THAT(order.sequences_of(9, 1), ElementsAre(0, 1, 2, 3));
}

TEST(DataPosition, IsBehindTheTokensReadWhateverTheLengthOfSequences) {
  const DataOrder eights{.sequences = 100, .rows = 8};
  const DataPosition six_steps = position_behind(eights, 16, 48);
  EXPECT_EQ(six_steps.epoch, 0);
  EXPECT_EQ(six_steps.sequences, 48);
  EXPECT_EQ(consumed_at(six_steps, {.sequences = 100, .rows = 16}, 16), 48);
  EXPECT_EQ(consumed_at(six_steps, {.sequences = 200, .rows = 8}, 8), 96);
  // 768 tokens are read: the first whole sequence of 100 tokens behind them begins at 800.
  EXPECT_EQ(consumed_at(six_steps, {.sequences = 16, .rows = 8}, 100), 8);
  EXPECT_THAT(going_on_text(six_steps, {.sequences = 100}, 48, 16),
              HasSubstr("after the 48 sequences of 16 tokens that were read in epoch 0: the next "
                        "step reads sequences 48 to 63 of 100 in epoch 0"));
  const DataPosition third_pass = position_behind(eights, 16, 299);
  EXPECT_EQ(third_pass.epoch, 2);
  EXPECT_EQ(consumed_at(third_pass, {.sequences = 50}, 32), 150);  // no whole one is left
  EXPECT_EQ(consumed_at(third_pass, {.sequences = 100}, 16), 299);
  EXPECT_THAT(going_on_text(third_pass, {.sequences = 100}, 299, 16),
              HasSubstr("sequences 99 to 99 of 100 in epoch 2, then the first of the next epoch"));
  // More data of the same sequences: the pass goes on in them.
  EXPECT_EQ(consumed_at(third_pass, {.sequences = 150}, 16), 2 * 150 + 99);
}

TEST(DataPosition, AnotherShuffledOrderBeginsTheNextEpoch) {
  const DataOrder order{.sequences = 100, .rows = 8, .shuffle = true, .seed = 7};
  const DataPosition position = position_behind(order, 16, 248);
  DataOrder larger_batch = order;
  larger_batch.rows = 16;
  EXPECT_EQ(consumed_at(position, larger_batch, 16), 248);
  DataOrder longer = order;
  longer.sequences = 50;
  EXPECT_EQ(consumed_at(position, longer, 32), 3 * 50);
  EXPECT_THAT(going_on_text(position, longer, 150, 8),
              AllOf(HasSubstr("epoch 2 ends after 48 of its 100 sequences"),
                    HasSubstr("the shuffled sequences 0 to 7 of 50 in epoch 3")));
  DataOrder unshuffled = order;
  unshuffled.shuffle = false;
  EXPECT_EQ(consumed_at(position, unshuffled, 16), 300);
  DataOrder seeded = order;
  seeded.seed = 8;
  EXPECT_EQ(consumed_at(position, seeded, 16), 300);
  EXPECT_EQ(consumed_at(position_behind(order, 16, 200), seeded, 16), 200);
  // Changed and changed back: what the first order had read of its epoch is not kept.
  const DataPosition again = position_behind(longer, 32, 158);
  EXPECT_EQ(again.epoch, 3);
  EXPECT_EQ(consumed_at(again, order, 16), 400);
}

TEST(DataOrder, IsTheSameForEveryWorldAndEachEpochIsWhole) {
  const auto sequences = [](std::int64_t world, bool shuffle) {
    const std::int64_t accumulation = 8 / world;
    const DataOrder order{
        .sequences = 12, .micro_batches = 8, .rows = 1, .shuffle = shuffle, .seed = 5};
    std::vector<std::int64_t> all;
    for (std::int64_t step = 0; step < 6; ++step) {
      std::vector<std::int64_t> of_step(8);
      for (std::int64_t rank = 0; rank < world; ++rank) {
        for (std::int64_t j = 0; j < accumulation; ++j) {
          of_step[static_cast<std::size_t>(j * world + rank)] =
              order.sequence(step, j * world + rank, 0);
        }
      }
      all.insert(all.end(), of_step.begin(), of_step.end());
    }
    return all;
  };
  for (const bool shuffle : {false, true}) {
    const auto one = sequences(1, shuffle);
    EXPECT_EQ(one, sequences(2, shuffle));
    EXPECT_EQ(one, sequences(8, shuffle));
    for (std::size_t epoch = 0; epoch < 4; ++epoch) {
      const std::set<std::int64_t> seen(one.begin() + static_cast<long>(12 * epoch),
                                        one.begin() + static_cast<long>(12 * epoch + 12));
      EXPECT_EQ(seen.size(), 12U);
    }
  }
  EXPECT_NE(sequences(1, true), sequences(1, false));
}

}  // namespace
}  // namespace zero::testing
