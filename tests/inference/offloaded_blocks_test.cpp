// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Models whose blocks are in a file of each rank.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <utility>

#include "collectives/agreement.h"
#include "inference/inference_memory.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/errors.h"
#include "tests/inference/generator_fixture.h"
#include "tests/inference/quantized_model.h"
#include "tests/inference/rank_runs.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class OffloadedBlocks : public InferenceRanks {
 protected:
  /// The same with blocks in files, of requests that are shorter than a block.
  InferenceOptions offloaded(InferenceOptions with) const {
    with.block_file = {.folder = nvme_.path(), .block_bytes = 4 * TierFile::kBlock};
    return with;
  }

  Scratch nvme_;
};

TEST_F(OffloadedBlocks, GiveTheBitsOfBlocksInMemoryInEveryFormat) {
  for (const DecoderShape& config : {three_blocks_of_gpt2(), three_blocks_of_llama()}) {
    save(config);
    for (const auto& [dtype, format] : kKinds) {
      const InferenceOptions with = rank_options(dtype, format);
      std::vector<Logits> expected;
      for (int shard = 0; shard < 3; ++shard) expected.push_back(alone(shard, with));
      EXPECT_EQ(alone(0, offloaded(with)), expected[0]) << name_of(format);
      for (const int ranks : {2, 3}) {
        const std::vector<Logits> found = on_mesh({.shard = ranks}, offloaded(with));
        for (std::size_t rank = 0; rank < found.size(); ++rank) {
          ASSERT_EQ(found[rank], expected[rank])
              << "rank " << rank << " of " << ranks << " in " << name_of(format);
        }
      }
    }
  }
  EXPECT_THAT(nvme_.names(), IsEmpty());
}

TEST_F(OffloadedBlocks, GiveTheSameBitsThroughAnyNumberOfWindows) {
  save(three_blocks_of_llama());
  const InferenceOptions usual = rank_options(DType::bf16);
  const std::vector<Logits> expected{alone(0, usual), alone(1, usual)};
  for (const std::int64_t windows : {1, 2, 3, 9}) {
    InferenceOptions with = offloaded(usual);
    with.windows = windows;
    EXPECT_EQ(alone(1, with), expected[1]) << windows << " windows";
    EXPECT_EQ(on_mesh({.shard = 2}, with), expected) << windows << " windows";
  }
}

TEST_F(OffloadedBlocks, OfTensorRanksToo) {
  save(three_blocks_of_gpt2());
  for (const auto& [dtype, format] : {kKinds[0], kKinds[4]}) {
    const InferenceOptions with = rank_options(dtype, format);
    for (const MeshShape& shape : {MeshShape{1, 1, 2}, MeshShape{1, 2, 2}, MeshShape{2, 2, 1}}) {
      EXPECT_EQ(on_mesh(shape, offloaded(with)), on_mesh(shape, with)) << shape.text();
    }
  }
}

// More ranks than groups of columns: some have nothing of a matrix, and less in their files.
TEST_F(OffloadedBlocks, OfRanksThatOutnumberGroupsOfColumns) {
  save(three_blocks_of_gpt2({{"width", 32}, {"heads", 2}, {"vocabulary", 70}}));
  EXPECT_EQ(on_mesh({.shard = 4}, offloaded(rank_options())),
            on_mesh({.shard = 4}, rank_options()));
}

TEST_F(OffloadedBlocks, GiveTheSameBitsInEveryOrderOfStreams) {
  save(three_blocks_of_llama());
  for (const MeshShape& shape : {MeshShape{1, 3, 1}, MeshShape{1, 1, 2}, MeshShape{1, 2, 2}}) {
    const InferenceOptions with = rank_options(DType::bf16);
    const std::vector<Logits> expected = on_mesh(shape, with);
    EXPECT_EQ(on_mesh(shape, offloaded(with), StreamOrder{.policy = StreamOrder::Policy::lazy}),
              expected);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      EXPECT_EQ(on_mesh(shape, offloaded(with), StreamOrder{StreamOrder::Policy::seeded, seed}),
                expected)
          << "seed " << seed;
    }
  }
}

TEST_F(OffloadedBlocks, OfFoldersOfCodesAndOfMatricesThatAreKept) {
  save(three_blocks_of_llama());
  InferenceOptions with = rank_options(DType::bf16, WeightFormat::nf4);
  with.keep.add(MatrixRole::hidden);
  EXPECT_EQ(on_mesh({.shard = 2}, offloaded(with))[1], alone(1, with));
  const std::string codes = scratch_.path("codes/");
  save_codes(folder_, codes, {WeightFormat::int8, DType::fp32});
  folder_ = codes;
  with = rank_options(DType::fp32, WeightFormat::int8);
  EXPECT_EQ(on_mesh({.shard = 2}, offloaded(with))[0], alone(0, with));
}

TEST_F(OffloadedBlocks, TakeMemoryAndFilesAsPlannedAndNothingLater) {
  const DecoderShape config = three_blocks_of_llama();
  save(config);
  for (const auto& [dtype, format] : {kKinds[0], kKinds[4]}) {
    for (const MeshShape& shape : {MeshShape{1, 1, 1}, MeshShape{1, 3, 1}, MeshShape{1, 2, 2}}) {
      const InferenceOptions with = offloaded(rank_options(dtype, format));
      expect_as_planned(config, shape, with, [&](Device& device, InferenceModel& model) {
        const std::int64_t file = device.file_ledger().snapshot().peak_total;
        EXPECT_GT(file, 0);
        EXPECT_EQ(model.block_reads().pass_bytes, file);
        if (shape.ranks() > 1) return;
        const InferenceMemory told = plan_inference_memory(config, with, {.threads = 2});
        EXPECT_EQ(told.file, file);
        EXPECT_EQ(told.total(), device.ledger().snapshot().peak_total);
        EXPECT_EQ(told.windows, device.ledger().snapshot().peak_of(MemoryClass::staging));
      });
    }
  }
}

// The first blocks of the next pass are read beside the end of this one: as many as there are slots
// and, on several ranks, windows to gather them into.
TEST_F(OffloadedBlocks, AreReadAheadOfTheNextPass) {
  save(three_blocks_of_gpt2());
  for (const int ranks : {1, 2}) {
    local::run(ranks, [&](Communicator& world) {
      Mesh mesh(world, {.shard = ranks});
      const auto device = cpu::open();
      const auto model = open_inference_model(*device, folder_, offloaded(rank_options()), &mesh);
      EXPECT_EQ(model->block_reads().bytes, 0);
      const std::vector<std::uint32_t> tokens{1, 2, 3};
      const InferenceModel::Part part{model->cache().open(), tokens};
      model->forward(std::span(&part, 1));
      EXPECT_EQ(model->pass_times().passes(), 1);
      EXPECT_EQ(model->pass_times().rows(), 3);
      device->transfer().synchronize();
      const BlockReads reads = model->block_reads();
      EXPECT_EQ(reads.bytes, reads.pass_bytes / 3 * (ranks == 1 ? 3 + 2 : 3 + 2 + 2));
    });
  }
}

// More blocks take more of the file, and of memory their vectors alone.
TEST(OffloadedBlocksMemory, DoesNotGrowWithBlocks) {
  InferenceOptions with{.dtype = DType::bf16, .request_tokens = 8};
  const auto planned = [&](std::int64_t layers) {
    return plan_inference_memory(tiny_llama({{"layers", layers}, {"width", 256}}), with, {});
  };
  const std::int64_t in_memory = planned(4).weights;
  with.block_file.folder = "/nvme";
  const InferenceMemory four = planned(4);
  const InferenceMemory eight = planned(8);
  EXPECT_EQ(eight.file, 2 * four.file);
  EXPECT_EQ(eight.windows, four.windows);
  EXPECT_LT(eight.weights - four.weights, four.file / 20);
  EXPECT_GT(in_memory - four.weights, four.file * 8 / 10);
}

/// What each of three ranks says if `call` number `number` fails on the second.
class OffloadedBlocksFaults : public OffloadedBlocks {
 protected:
  std::vector<std::string> said(const std::string& call, int number) {
    std::vector<std::string> all(3);
    local::run(3, [&](Communicator& world) {
      Mesh mesh(world, {.shard = 3});
      Faults faults("disk on fire");
      if (world.rank() == 1) faults.fail_at(call, number);
      HookedDisk disk(std::ref(faults));
      InferenceOptions with = offloaded(rank_options());
      with.block_file.disk = &disk;
      try {
        const auto device = cpu::open();
        const auto model = open_inference_model(*device, folder_, with, &mesh);
        for (int i = 0; i < 4; ++i) run_passes(*model, world.rank());
      } catch (const AgreedError& error) {
        all[static_cast<std::size_t>(world.rank())] = error.what();
      }
      EXPECT_EQ(faults.happened(), world.rank() == 1) << call;
    });
    return all;
  }
};

// On streams that run as late as they may, so that the last write is still to come.
TEST_F(OffloadedBlocksFaults, EndTheLoad) {
  save(three_blocks_of_gpt2());
  const auto said_by_load = [&](Faults& faults) {
    std::vector<std::string> all(2);
    local::run(2, [&](Communicator& world) {
      Mesh mesh(world, {.shard = 2});
      Faults none("");
      HookedDisk disk(std::ref(world.rank() == 1 ? faults : none));
      InferenceOptions with = offloaded(rank_options());
      with.block_file.disk = &disk;
      const auto device = open_device(StreamOrder{.policy = StreamOrder::Policy::lazy});
      all[static_cast<std::size_t>(world.rank())] =
          error_of([&] { open_inference_model(*device, folder_, with, &mesh); });
    });
    return all;
  };
  Faults counts("");
  EXPECT_THAT(said_by_load(counts), Each("no error"));
  const int writes = counts.calls().at("queue write");
  for (const int number : {0, writes - 1}) {
    Faults faults("disk on fire");
    faults.fail_at("queue write", number);
    EXPECT_THAT(said_by_load(faults), Each(AllOf(HasSubstr("[rank 1] "), HasSubstr("disk on fire"),
                                                 HasSubstr("weights in that file are lost"))))
        << "write " << number << " of " << writes;
  }
}

TEST_F(OffloadedBlocksFaults, EndEveryRankWithTheSameMessage) {
  save(three_blocks_of_gpt2());
  for (const auto& [call, number] :
       {std::pair("create_scratch", 0), {"queue write", 1}, {"queue read", 0}, {"queue read", 9}}) {
    EXPECT_THAT(said(call, number), Each(AllOf(HasSubstr("[rank 1] "), HasSubstr("disk on fire"))))
        << call << number;
    EXPECT_THAT(nvme_.names(), IsEmpty());
  }
}

TEST_F(OffloadedBlocksFaults, EndOneRankInThePassAndInAllLaterOnes) {
  save(three_blocks_of_gpt2());
  Faults faults("disk on fire");
  faults.fail_at("queue read", 4);
  HookedDisk disk(std::ref(faults));
  InferenceOptions with = offloaded(rank_options());
  with.block_file.disk = &disk;
  const auto device = cpu::open();
  const auto model = open_inference_model(*device, folder_, with);
  Generator generator(*model);
  const GenerationCallbacks silent{
      .on_token = [](const GeneratedToken& /*token*/) { return Flow::more; },
      .on_end = [](const GenerationEnd& /*end*/) {}};
  generator.submit({.prompt = {1, 2, 3}, .max_tokens = 30, .sampling = {}}, silent);
  const auto run = [&] {
    while (!generator.idle()) generator.step();
  };
  EXPECT_THAT(error_of(run), AllOf(HasSubstr("disk on fire"), HasSubstr("weights in that file"),
                                   Not(HasSubstr("[rank"))));
  const std::vector<std::uint32_t> tokens{1};
  const InferenceModel::Part part{model->cache().open(), tokens};
  EXPECT_THAT(error_of([&] { model->forward(std::span(&part, 1)); }), HasSubstr("disk on fire"));
}

// Requests that join and are preempted, beside guesses.
TEST_F(Generators, GiveTheSameAnswersWithBlocksInAFile) {
  const Scratch nvme;
  std::map<int, GeneratedAnswer> expected;
  for (const bool in_file : {false, true}) {
    InferenceOptions with{.requests = 4, .request_tokens = 112, .cache_tokens = 112, .rows = 32};
    if (in_file) with.block_file.folder = nvme.path();
    const auto model = open(with);
    NgramDrafter ngrams;
    Generator generator(*model, {.drafter = &ngrams, .draft_tokens = 4});
    for (int i = 0; i < 12; ++i) generator.submit(request(i), recording(i));
    run(generator);
    EXPECT_GT(generator.scheduler().preemptions(), 0);
    if (!in_file) expected = std::exchange(answers_, {});
  }
  for (const auto& [number, answer] : expected) {
    EXPECT_TRUE(answers_[number].same_tokens(answer)) << number;
  }
  EXPECT_EQ(answers_.size(), expected.size());
}

}  // namespace
}  // namespace zero::testing
