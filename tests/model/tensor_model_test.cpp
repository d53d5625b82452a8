// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/vocabulary_parallel.h"
#include "tests/errors.h"
#include "tests/model/outcome.h"
#include "tests/support/test_device.h"

// Models over meshes: what they give on one rank up to the order of some sums, and at one tensor
// degree the same bits however they are carried out.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

constexpr BatchShape kBatch{1, 9};
constexpr int kMicroBatches = 8;  // of a step, over all ranks

struct Job {
  MeshShape mesh{1, 1, 1};
  TensorOptions tensor{};
  EngineOptions engine{};
  Open open = on_threads(1);
  int steps = 10;
  std::map<std::string, std::vector<float>> start{};  ///< weights to begin with; empty: initial

  std::string label() const {
    return fmt::format("{} x {} x {}, stage {}, {} chunks{}", mesh.replicate, mesh.shard,
                       mesh.tensor, engine.stage, tensor.chunks,
                       tensor.sequence_parallel ? ", own rows" : "");
  }
};

struct Course {
  std::vector<double> losses;  // of micro-batches in their global order
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;
  std::uint64_t state = 0;
  friend bool operator==(const Course&, const Course&) = default;
};

void train_rank(Communicator& world, const DecoderShape& config, const Job& run, Course& course) {
  const auto device = run.open();
  Mesh mesh(world, run.mesh);
  const int data = mesh.data().size();
  const int accumulation = kMicroBatches / data;
  Training training(mesh, *device, run.engine, config, kBatch, accumulation, run.tensor);
  for (const auto& [name, values] : run.start) training.write(name, values);
  const std::int64_t tokens = kBatch.batch * kBatch.sequence;
  for (int step = 0; step < run.steps; ++step) {
    for (int j = 0; j < accumulation; ++j) {
      const int index = step * kMicroBatches + j * data + mesh.data().rank();
      const Batch batch = Batch::random(tokens, training.model.vocabulary(),
                                        static_cast<std::uint32_t>(index % 24));
      const double loss = training.train(batch, 1.0F / static_cast<float>(tokens * kMicroBatches));
      if (mesh.index(Axis::tensor) == 0) {
        course.losses[static_cast<std::size_t>(index)] = loss;
      }
    }
    const StepReport report = training.engine.step({.learning_rate = 1e-3});
    if (world.rank() == 0) course.norms.push_back(report.gradient_norm);
  }
  const std::uint64_t state = training.engine.states().hash();
  if (world.rank() == 0) course.state = state;
  for (const auto& [name, count] : training.sizes()) {
    std::vector<float> values = training.read(name);
    if (world.rank() == 0) course.weights[name] = std::move(values);
  }
}

Course train(const DecoderShape& config, const Job& run) {
  Course course;
  course.losses.resize(static_cast<std::size_t>(run.steps * kMicroBatches));
  local::run(run.mesh.ranks(),
             [&](Communicator& world) { train_rank(world, config, run, course); });
  return course;
}

// The biases of keys have no true gradient: Adam turns noise into steps.
void drop_key_biases(std::vector<float>& values, const std::string& name) {
  if (name.ends_with("c_attn.bias")) {
    const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
    values.erase(values.begin() + third, values.begin() + 2 * third);
  };
  if (name.ends_with("qkv_proj.bias")) values.erase(values.begin() + 48, values.begin() + 64);
}

/// Infinity for a NaN, which no comparison would find.
double magnitude(double difference) {
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::abs(difference);
}

double relative(double found, double expected) { return magnitude(found / expected - 1); }

struct Tolerance {
  double loss = 2e-6;
  double norm = 2e-6;
  double weight = 1e-5;
};

void expect_parity(const Course& found, const Course& expected, const Tolerance& tolerance,
                   const std::string& what) {
  double loss = 0;
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    loss = std::max(loss, relative(found.losses[i], expected.losses[i]));
  }
  EXPECT_LE(loss, tolerance.loss) << what;
  double norm = 0;
  for (std::size_t i = 0; i < expected.norms.size(); ++i) {
    norm = std::max(norm, relative(found.norms[i], expected.norms[i]));
  }
  EXPECT_LE(norm, tolerance.norm) << what;
  std::vector<double> differences;
  for (auto [name, values] : expected.weights) {
    std::vector<float> mine = found.weights.at(name);
    drop_key_biases(values, name);
    drop_key_biases(mine, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      differences.push_back(
          magnitude(static_cast<double>(mine[i]) - static_cast<double>(values[i])));
    }
  }
  std::ranges::sort(differences);
  EXPECT_LE(differences[differences.size() * 999 / 1000], tolerance.weight) << what;
}

class TensorModels : public ::testing::TestWithParam<DecoderShape> {
 protected:
  DecoderShape config_ = GetParam();
};

std::vector<Job> meshes() {
  std::vector<Job> runs;
  for (const MeshShape& mesh :
       std::vector<MeshShape>{{1, 8, 1}, {1, 4, 2}, {1, 2, 4}, {1, 1, 8}, {2, 2, 2}}) {
    for (const bool own_rows : {false, true}) {
      if (mesh.tensor == 1 && own_rows) continue;
      runs.push_back({.mesh = mesh, .tensor = {.sequence_parallel = own_rows, .chunks = 2}});
    }
  }
  return runs;
}

TEST_P(TensorModels, OverAnyMeshTrainAsOneRankDoes) {
  const Course alone = train(config_, {});
  Tolerance tolerance;
  if (config_.branch_norms) tolerance.norm = 4e-6;  // these norms pass on more of the rounding
  for (const Job& run : meshes()) {
    const Course course = train(config_, run);
    if (run.mesh.tensor == 1) {
      EXPECT_EQ(course, alone) << run.label();
    } else {
      expect_parity(course, alone, tolerance, run.label());
    }
  }
}

TEST_P(TensorModels, InBf16StayCloseToOneRank) {
  const Course alone = train(config_, {.engine = {.compute = DType::bf16}});
  for (const bool own_rows : {false, true}) {
    const Course course = train(config_, {.mesh = {1, 2, 4},
                                          .tensor = {.sequence_parallel = own_rows},
                                          .engine = {.compute = DType::bf16}});
    expect_parity(course, alone, {.loss = 2e-2, .norm = 5e-2, .weight = 5e-3}, "bf16");
  }
}

TEST_P(TensorModels, AtOneTensorDegreeHaveTheSameBitsHoweverTheyAreCarriedOut) {
  for (const bool own_rows : {false, true}) {
    Job base{.mesh = {1, 1, 2},
             .tensor = {.sequence_parallel = own_rows, .chunks = 2},
             .engine = {.stage = 0, .gradient_clipping = 1.0},
             .steps = 2};
    const Course expected = train(config_, base);
    const auto same = [&](const Job& run) {
      EXPECT_EQ(train(config_, run), expected) << run.label();
    };
    for (const int stage : {1, 2, 3}) {
      Job run = base;
      run.engine.stage = stage;
      run.mesh.shard = 2;
      same(run);
    }
    Job run = base;
    run.engine.stage = 3;
    run.mesh = {2, 2, 2};
    run.engine.limits.reduce_bucket_elements = 500;
    run.engine.limits.prefetch_elements = 0;
    same(run);
    run.engine.overlap = false;
    same(run);
    run.mesh = {1, 1, 2};
    run.engine.overlap = true;
    for (const std::uint64_t seed : {0U, 1U, 2U}) {
      const StreamOrder order{seed == 0 ? StreamOrder::Policy::lazy : StreamOrder::Policy::seeded,
                              seed, seed == 0 ? MemorySpace::device : MemorySpace::host};
      run.open = [order] { return open(order); };
      same(run);
    }
  }
}

TEST_P(TensorModels, WithAllRowsOnEveryRankTakeNoBitFromChunks) {
  for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
    Job run{.mesh = {1, 1, 2}, .tensor = {.chunks = 1}, .engine = {.compute = compute}, .steps = 2};
    const Course expected = train(config_, run);
    for (const int chunks : {2, 3, 7}) {
      run.tensor.chunks = chunks;
      run.open = [] { return open({.policy = StreamOrder::Policy::lazy}); };
      EXPECT_EQ(train(config_, run), expected) << run.label();
    }
  }
}

// Rows of logits are padded, and several chunks' rows, or a part of one's, are in memory at a time.
TEST_P(TensorModels, TakeNoBitFromThePaddingOfLogits) {
  for (const int ranks : {1, 2, 3}) {
    Job run{
        .mesh = {1, 1, ranks}, .tensor = {.sequence_parallel = ranks > 1, .chunks = 3}, .steps = 2};
    const auto train_with = [&](std::int64_t rows, std::int64_t columns) {
      const StreamOrder order{.pieces = {.logit_rows = rows, .logit_columns = columns}};
      run.open = [order] { return open(order); };
      return train(config_, run);
    };
    const Course expected = train_with(512, 1);
    EXPECT_EQ(train_with(512, 64), expected) << run.label();
    // The weight's gradient is summed in other parts.
    expect_parity(train_with(4, 64), expected, {}, run.label() + ", 4 rows at a time");
  }
}

TEST(VocabularyParallelHead, PadsRowsOfLogitsToWholeLines) {
  EXPECT_EQ(VocabularyParallelHead::padded_columns(*cpu::open(), 50257), 50304);
  EXPECT_EQ(VocabularyParallelHead::padded_columns(*planning::open(), 65), 128);
}

TEST(VocabularyParallelHead, TakesEqualPiecesOfAGpusMemory) {
  const auto rows_of = [](const PieceSizes& pieces, std::int64_t rows, std::int64_t columns) {
    return VocabularyParallelHead::piece_rows(pieces, rows, columns, DType::bf16);
  };
  EXPECT_EQ(rows_of(PieceSizes(), 32768, 50304), 1024) << "of a CPU";
  EXPECT_EQ(rows_of(PieceSizes(), 70, 50304), 70);
  EXPECT_EQ(rows_of(kGpuPieces, 16384, 50304), 16384);
  EXPECT_EQ(rows_of(kGpuPieces, 32768, 50304), 16384);
  EXPECT_EQ(rows_of(kGpuPieces, 65536, 50304), 16384);
  EXPECT_EQ(rows_of(kGpuPieces, 50000, 50304), 16768) << "three of whole tiles";
  EXPECT_EQ(rows_of(kGpuPieces, 33, 50304), 33);
  EXPECT_EQ(rows_of(kGpuPieces, 32768, 151936), 6656) << "five";
  EXPECT_EQ(rows_of(kGpuPieces, 42690, 50304), 14336) << "two would exceed 2 GiB";
  EXPECT_EQ(rows_of(kGpuPieces, 32768, 1 << 20), 1024);
  EXPECT_EQ(rows_of(kGpuPieces, 32768, 1 << 24), 128) << "a tile at least";
}

// Their shares of the vocabulary, padded, may differ.
TEST(VocabularyParallelHead, TakesAsManyRowsOnAllRanksOfAGroup) {
  constexpr std::int64_t kRows = 1 << 24;
  constexpr std::int64_t kVocabulary = 129;  // 65, padded to 128, and 64
  for (const int rank : {0, 1}) {
    const auto nobody = planning::communicator(rank, 2, BackendKind::local);
    const auto device = planning::open(1, MemorySpace::device, DeviceKind::cuda);
    TensorParallel tensor(*nobody, *device, kRows, {});
    EXPECT_EQ(VocabularyParallelHead::rows_at_a_time(tensor, kVocabulary, DType::bf16), kRows / 2);
  }
}

TEST_P(TensorModels, EvaluateAndGiveLogitsAsOneRankDoes) {
  std::vector<double> losses;
  std::vector<std::vector<float>> logits;
  for (const auto& [ranks, own_rows] :
       std::vector<std::pair<int, bool>>{{1, false}, {3, false}, {3, true}}) {
    local::run(ranks, [&](Communicator& world) {
      const auto device =
          own_rows ? open({.memory = MemorySpace::device}) : cpu::open({.threads = 1});
      Mesh mesh(world, {1, 1, ranks});
      Training training(mesh, *device, {}, config_, {2, 7}, 1, {.sequence_parallel = own_rows});
      const Batch batch = Batch::random(14, 41, 1);
      const double loss = training.evaluate(batch);
      std::vector<float> of_row = training.next_logits(batch, 4);
      EXPECT_EQ(training.train(batch, 1), loss);
      if (world.rank() != ranks - 1) return;
      losses.push_back(loss);
      logits.push_back(std::move(of_row));
    });
    EXPECT_LE(relative(losses.back(), losses.front()), 1e-6);
    for (std::size_t i = 0; i < logits.back().size(); ++i) {
      EXPECT_NEAR(logits.back()[i], logits.front()[i], 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorModels,
                         ::testing::Values(uneven_gpt2(), uneven_llama(9), uneven_qwen3(9),
                                           as_gemma3(uneven_llama(9), 3)),
                         [](const auto& tested) {
                           return fmt::format("{}{}", tested.param.family->name, tested.index);
                         });

// ZeRO-3, tensor parallelism, accumulation, a tied head and a vocabulary that does not divide, at
// once; and on from its weights at another mesh.
TEST(TensorModel, OfGpt2sVocabularyOver3RanksTrainsAndGoesOnAtAnotherMesh) {
  const DecoderShape config = tiny_gpt2({{"layers", 1}, {"vocabulary", 50257}});
  const Job job{.mesh = {1, 2, 3},
                .tensor = {.sequence_parallel = true},
                .engine = {.stage = 3, .gradient_clipping = 1.0},
                .steps = 2};
  const Job alone{.engine = job.engine, .steps = 2};
  const Course course = train(config, job);
  expect_parity(course, train(config, alone), {}, job.label());
  Job on = alone;
  on.start = course.weights;
  const Course expected = train(config, on);
  on.mesh = {2, 1, 2};
  on.engine.stage = 2;
  expect_parity(train(config, on), expected, {}, on.label());
}

TEST(TensorModel, WhatCannotBeCutIsNamedWithWhatWould) {
  local::run(8, [](Communicator& world) {
    const auto device = cpu::open({.threads = 1});
    Mesh mesh(world, {1, 1, 8});
    Engine engine(mesh, *device, {});
    const DecoderShape gpt2 = uneven_gpt2({{"heads", 6}});
    EXPECT_THAT(error_of([&] { Decoder model(engine, gpt2, kBatch); }),
                HasSubstr("6 heads of attention cannot be cut over 8 tensor ranks, each of which "
                          "needs one; use at most 6 tensor ranks"));
    DecoderShape llama = uneven_llama(9);
    llama.vocabulary = 7;
    EXPECT_THAT(error_of([&] { Decoder model(engine, llama, kBatch); }),
                HasSubstr("model.vocabulary: 7 cannot be cut over 8 tensor ranks"));
    llama = uneven_llama(9);
    llama.intermediate = 3;
    EXPECT_THAT(error_of([&] { Decoder model(engine, llama, kBatch); }),
                HasSubstr("model.intermediate: 3 cannot be cut over 8 tensor ranks"));
  });
}

}  // namespace
}  // namespace zero::testing
