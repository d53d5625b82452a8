// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/training_harness.h"

// What a model says beforehand of its traffic along the tensor axis and of its memory.
namespace zero::testing {
namespace {

// All sizes divide by 4, and pieces of memory by their alignment.
DecoderShape even_gpt2(std::int64_t layers) {
  return tiny_gpt2(
      {{"layers", layers}, {"width", 64}, {"heads", 4}, {"context", 32}, {"vocabulary", 128}});
}
constexpr BatchShape kEven{2, 32};

/// body(training) on every rank of a tensor group.
void over(int ranks, const DecoderShape& config, const TensorOptions& options,
          const std::function<void(Training&, Device&)>& body) {
  local::run(ranks, [&](Communicator& world) {
    const auto device = cpu::open({.threads = 1});
    Mesh mesh(world, {1, 1, ranks});
    Training training(mesh, *device, {}, config, kEven, 1, options);
    body(training, *device);
  });
}

TrafficCounter recorded(Training& training) {
  const TrafficCounter before = training.engine.mesh().traffic().of(Axis::tensor);
  training.train(Batch::random(64, training.model.vocabulary(), 1), 1.0F);
  return training.engine.mesh().traffic().of(Axis::tensor).since(before);
}

std::int64_t sent(Operation operation, std::int64_t bytes, int ranks) {
  return Communicator::sent_bytes(operation, bytes, ranks);
}

constexpr std::int64_t kLayers = 2;
constexpr std::int64_t kRow = 64 * 4;       // bytes of C elements
constexpr std::int64_t kRows = 64 * kRow;   // B T C
constexpr std::int64_t kFigures = 64 * 12;  // three a row, of each rank

TEST(TensorTraffic, IsFourAllReducesOfTheRowsALayer) {
  for (const int ranks : {2, 4}) {
    over(ranks, even_gpt2(kLayers), {.chunks = 2}, [&](Training& training, Device&) {
      const TrafficCounter traffic = recorded(training);
      // And one for the embedding, one for the head.
      EXPECT_EQ(traffic.of(Operation::all_reduce),
                (4 * kLayers + 2) * sent(Operation::all_reduce, kRows, ranks));
      EXPECT_EQ(traffic.of(Operation::all_gather),
                sent(Operation::all_gather, ranks * kFigures, ranks));
      EXPECT_EQ(traffic.of(Operation::reduce_scatter), 0);
    });
  }
}

TEST(TensorTraffic, UnderSequenceParallelismIsFourReduceScattersAndSixGathersALayer) {
  for (const int ranks : {2, 4}) {
    const TensorOptions options{.sequence_parallel = true, .chunks = 2};
    over(ranks, even_gpt2(kLayers), options, [&](Training& training, Device&) {
      const TrafficCounter traffic = recorded(training);
      EXPECT_EQ(traffic.of(Operation::reduce_scatter),
                (4 * kLayers + 2) * sent(Operation::reduce_scatter, kRows, ranks));
      EXPECT_EQ(traffic.of(Operation::all_gather),
                (6 * kLayers + 2) * sent(Operation::all_gather, kRows, ranks) +
                    sent(Operation::all_gather, ranks * kFigures, ranks));
      // Two parameters of two norms a layer, and of the last norm.
      EXPECT_EQ(traffic.of(Operation::all_reduce),
                kLayers * sent(Operation::all_reduce, 4 * kRow, ranks) +
                    sent(Operation::all_reduce, 2 * kRow, ranks));
    });
  }
}

TEST(TensorTraffic, IsWhatTheModelForetold) {
  for (const DecoderShape& config :
       {even_gpt2(2), uneven_llama(32), uneven_qwen3(32), as_gemma3(uneven_llama(32), 7)}) {
    for (const int ranks : {1, 3, 8}) {
      if (ranks > 4 && config.family->name == "gpt2") continue;
      for (const bool own_rows : {false, true}) {
        const TensorOptions options{.sequence_parallel = own_rows, .chunks = 3};
        over(ranks, config, options, [&](Training& training, Device&) {
          const TrafficCounter traffic = recorded(training);
          const TrafficCounter foretold = training.model.tensor_traffic();
          for (const Operation operation :
               {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce}) {
            EXPECT_EQ(traffic.of(operation), foretold.of(operation)) << name_of(operation);
          }
          EXPECT_EQ(traffic.total(), foretold.total());
        });
      }
    }
  }
}

TEST(TensorMemory, IsPlannedToTheByte) {
  for (const int choice : {0, 1, 2, 3, 4, 5}) {
    const TensorOptions options{.sequence_parallel = choice % 2 == 1, .chunks = 2};
    const DecoderShape configs[] = {uneven_llama(32), uneven_qwen3(32),
                                    as_gemma3(uneven_llama(32), 7)};
    const DecoderShape& config = configs[choice / 2];
    over(3, config, options, [&](Training& training, Device& device) {
      const Communicator& group = training.engine.mesh().axis(Axis::tensor);
      const auto nobody = planning::communicator(group.rank(), 3, BackendKind::local);
      Mesh mesh(*nobody, {1, 1, 3});
      const auto plan = planning::open(1);
      Training planned(mesh, *plan, {}, config, kEven, 1, options);
      training.train(Batch::random(64, 41, 1), 1.0F);
      training.engine.step({.learning_rate = 1e-3});
      for (const MemoryClass each : {MemoryClass::activations, MemoryClass::communication}) {
        EXPECT_EQ(plan->ledger().snapshot().current_of(each),
                  device.ledger().snapshot().peak_of(each));
      }
      EXPECT_EQ(training.model.activation_bytes(),
                device.ledger().snapshot().current_of(MemoryClass::activations));
    });
  }
}

// Over MPI slices travel: two chunks of the rows, of which the other rank's share is received.
TEST(TensorMemory, HasAReceiveSliceForEveryPeerOverMpi) {
  const auto nobody = planning::communicator(0, 4, BackendKind::mpi);
  Mesh mesh(*nobody, {1, 1, 4});
  const auto plan = planning::open(1);
  const auto communication = [&] {
    return plan->ledger().snapshot().current_of(MemoryClass::communication);
  };
  TensorParallel tensor(mesh.tensor(), *plan, 64, {.chunks = 2});
  tensor.prepare(64, DType::fp32);
  tensor.allocate();
  EXPECT_EQ(communication(), 3 * kRows / 4 / 2);
}

std::int64_t bytes_of_a_layer(int ranks, const TensorOptions& options) {
  const auto bytes = [&](std::int64_t layers) {
    const auto nobody = planning::communicator(0, ranks, BackendKind::local);
    Mesh mesh(*nobody, {1, 1, ranks});
    const auto plan = planning::open(1);
    return Training(mesh, *plan, {}, even_gpt2(layers), kEven, 1, options).model.activation_bytes();
  };
  return bytes(3) - bytes(2);
}

TEST(TensorMemory, OfALayersActivationsShrinksByTheTensorDegree) {
  const std::int64_t alone = bytes_of_a_layer(1, {});
  // x, middle and their statistics stay whole where rows are not cut.
  const std::int64_t of_rows = 2 * (kRows + 64 * 8);
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(bytes_of_a_layer(ranks, {}), of_rows + (alone - of_rows) / ranks);
    EXPECT_EQ(bytes_of_a_layer(ranks, {.sequence_parallel = true}), alone / ranks);
  }
}

}  // namespace
}  // namespace zero::testing
