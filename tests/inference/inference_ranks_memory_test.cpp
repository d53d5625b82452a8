// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/inference/rank_runs.h"

namespace zero::testing {
namespace {

TEST_F(InferenceRanks, MemoryIsAsPlannedAndNothingIsAllocatedLater) {
  const DecoderShape config = three_blocks_of_llama();
  save(config);
  for (const auto& [dtype, format] : kKinds) {
    for (const MeshShape& shape : {MeshShape{1, 4, 1}, MeshShape{1, 1, 2}, MeshShape{1, 3, 2}}) {
      expect_as_planned(config, shape, rank_options(dtype, format));
    }
  }
}

/// Bytes of a class on rank 0 of a mesh, planned.
std::int64_t planned(const MeshShape& shape, const DecoderShape& config,
                     const InferenceOptions& with, MemoryClass of) {
  const auto world = planning::communicator(0, shape.shard * shape.tensor, BackendKind::local);
  Mesh mesh(*world, shape);
  const auto device = planning::open();
  const InferenceModel model(*device, config, with, &mesh);
  return device->ledger().snapshot().current_of(of);
}

// Llama 3.2 3B's sizes.
DecoderShape llama_3b() {
  return tiny_llama({{"layers", 28},
                     {"width", 3072},
                     {"heads", 24},
                     {"kv_heads", 8},
                     {"head_width", 128},
                     {"intermediate", 8192},
                     {"vocabulary", 128256},
                     {"context", 8192},
                     {"head", "tied"}});
}

TEST(InferenceRanksMemory, OfWeightsIsAFourthOnFourRanks) {
  const DecoderShape config = llama_3b();
  const InferenceOptions with{.dtype = DType::bf16, .requests = 4, .request_tokens = 1024};
  const std::int64_t whole = planned({1, 1, 1}, config, with, MemoryClass::parameters);
  const std::int64_t block = 100'663'296 * 2;
  for (const MeshShape& shape : {MeshShape{1, 4, 1}, MeshShape{1, 1, 4}, MeshShape{1, 2, 2}}) {
    EXPECT_LT(planned(shape, config, with, MemoryClass::parameters), whole / 4 + (1 << 20));
    EXPECT_EQ(planned(shape, config, with, MemoryClass::gathered),
              shape.shard == 1 ? 0 : 2 * block / shape.tensor);
  }
}

TEST(InferenceRanksMemory, OfTheCacheIsThatOfTheRanksHeads) {
  const DecoderShape config = llama_3b();
  const auto bytes = [&](int tensor) {
    const auto world = planning::communicator(0, tensor, BackendKind::local);
    Mesh mesh(*world, {1, 1, tensor});
    const auto device = planning::open();
    InferenceModel model(*device, config, {.dtype = DType::bf16, .request_tokens = 1024}, &mesh);
    return model.cache().shape().block_bytes();
  };
  EXPECT_EQ(bytes(4) * 4, bytes(1));
  EXPECT_EQ(bytes(8) * 8, bytes(1));
}

}  // namespace
}  // namespace zero::testing
