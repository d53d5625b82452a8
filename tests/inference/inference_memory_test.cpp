// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "architecture/family.h"
#include "inference/inference_model.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

/// As a config.json alone has it.
DecoderShape llama_of(std::int64_t layers, std::int64_t heads, std::int64_t head_width,
                      std::int64_t intermediate, std::int64_t vocabulary) {
  DecoderShape shape = decoder_shape({{"family", "llama"},
                                      {"layers", layers},
                                      {"width", heads * head_width},
                                      {"heads", heads},
                                      {"kv_heads", heads},
                                      {"head_width", head_width},
                                      {"intermediate", intermediate},
                                      {"vocabulary", vocabulary},
                                      {"context", 4096},
                                      {"head", "separate"}});
  return parse_hf_config("config.json", hf_config_text(shape));
}

// Matrices of a block: q, k and v (256 x 768), projection (256 x 256), gate and up (256 x 1024),
// output (512 x 256); two tables of 1024 x 256. Vectors: two norms a block, one behind: 256 each.
constexpr std::int64_t kBlock = 256 * 768 + 256 * 256 + 256 * 1024 + 512 * 256;
constexpr std::int64_t kTables = 2 * 1024 * 256;
constexpr std::int64_t kMatrices = 2 * kBlock + kTables;
constexpr std::int64_t kVectors = (2 * 2 + 1) * 256;
DecoderShape two_blocks() { return llama_of(2, 4, 64, 512, 1024); }

std::int64_t weights_of(InferenceOptions options) {
  options.request_tokens = 64;
  return plan_inference_memory(two_blocks(), options, {}).weights;
}

TEST(InferenceMemory, OfWeightsIsTheirBytes) {
  static_assert(kMatrices == 1'835'008);
  EXPECT_EQ(two_blocks().parameter_count(), kMatrices + kVectors);
  EXPECT_EQ(weights_of({.dtype = DType::fp32}), 4 * (kMatrices + kVectors));
  EXPECT_EQ(weights_of({.dtype = DType::fp16}), 2 * (kMatrices + kVectors));
  EXPECT_EQ(weights_of({.dtype = DType::bf16}), 2 * (kMatrices + kVectors));
}

TEST(InferenceMemory, OfCodesIsTheirBytesAndThoseOfScales) {
  // int8: a byte an element, an fp32 scale an output.
  constexpr std::int64_t kOutputs = 2 * (768 + 256 + 1024 + 256) + 2 * 1024;
  EXPECT_EQ(weights_of({.dtype = DType::bf16, .weights = WeightFormat::int8}),
            kMatrices + 4 * kOutputs + 2 * kVectors);
  // nf4: half a byte an element, a byte for each scale of 64, a pair of fp32 for 32 outputs and (up
  // to) 8 scales of each: every matrix here has 4 or 8 scales an output.
  EXPECT_EQ(weights_of({.dtype = DType::bf16, .weights = WeightFormat::nf4}),
            kMatrices / 2 + kMatrices / 64 + 8 * kOutputs / 32 + 2 * kVectors);
  // q4: half a byte an element, an fp16 scale for 128.
  EXPECT_EQ(weights_of({.dtype = DType::bf16, .weights = WeightFormat::q4}),
            kMatrices / 2 + 2 * kMatrices / 128 + 2 * kVectors);
}

TEST(InferenceMemory, OfKeptMatricesIsThatOfTheirDtype) {
  InferenceOptions options{.dtype = DType::bf16, .weights = WeightFormat::q4};
  const auto coded = [](std::int64_t elements) { return elements / 2 + 2 * elements / 128; };
  options.keep.add(MatrixRole::head);
  EXPECT_EQ(weights_of(options), coded(kMatrices - kTables / 2) + 2 * kTables / 2 + 2 * kVectors);
  options.keep.add(MatrixRole::embedding);
  EXPECT_EQ(weights_of(options), coded(kMatrices - kTables) + 2 * kTables + 2 * kVectors);
  options.keep.add(MatrixRole::output);
  constexpr std::int64_t kOutputs = 2 * 512 * 256;
  EXPECT_EQ(weights_of(options),
            coded(kMatrices - kTables - kOutputs) + 2 * (kTables + kOutputs) + 2 * kVectors);
  for (const MatrixRole role : kMatrixRoles) options.keep.add(role);
  EXPECT_EQ(weights_of(options), 2 * (kMatrices + kVectors));
}

TEST(InferenceMemory, OfTheCacheIsKeysAndValuesOfAllLayers) {
  // 2 x 32 layers x 32 heads x 128 x 2,048 tokens x 2 bytes = 1.07 GB, which is 1 GiB.
  constexpr std::int64_t kBytes = std::int64_t{2} * 32 * 32 * 128 * 2048 * 2;
  static_assert(kBytes == 1'073'741'824);
  const DecoderShape seven = llama_of(32, 32, 128, 11008, 32000);  // LLaMA 7B
  EXPECT_EQ(seven.parameter_count(), 6'738'415'616);
  const InferenceMemory one =
      plan_inference_memory(seven, {.dtype = DType::fp16, .request_tokens = 2048}, {});
  EXPECT_EQ(one.cache, kBytes);
  EXPECT_EQ(one.blocks, 2048 / 16);
  EXPECT_EQ(one.weights, 2 * 6'738'415'616);
  const InferenceMemory four = plan_inference_memory(
      seven, {.dtype = DType::fp16, .requests = 4, .request_tokens = 2048, .block_tokens = 64}, {});
  EXPECT_EQ(four.cache, 4 * kBytes);
  EXPECT_EQ(four.longest_at_once(), 4);
  // Of 8 bits: a byte an element, and an fp32 scale for a token's key or value of one head.
  const InferenceMemory coded = plan_inference_memory(
      seven, {.dtype = DType::fp16, .cache = CacheFormat::int8, .request_tokens = 2048}, {});
  EXPECT_EQ(coded.cache, kBytes / 2 + std::int64_t{2} * 32 * 32 * 2048 * 4);
  // Half of the heads on each of two tensor ranks.
  const InferenceMemory half =
      plan_inference_memory(seven, {.dtype = DType::fp16, .request_tokens = 2048},
                            {.shape = {.replicate = 1, .shard = 1, .tensor = 2}}, 1);
  EXPECT_EQ(half.cache, kBytes / 2);
}

TEST(InferenceMemory, IsThatOfTheModelOnADevice) {
  for (const WeightFormat weights : {WeightFormat::plain, WeightFormat::nf4}) {
    const InferenceOptions options{.dtype = DType::bf16,
                                   .weights = weights,
                                   .requests = 3,
                                   .request_tokens = 100,
                                   .block_tokens = 32,
                                   .cache_tokens = 192,
                                   .host_tokens = 64};
    const auto device = cpu::open({.threads = 2});
    InferenceModel model(*device, two_blocks(), options);
    const InferenceMemory planned = plan_inference_memory(two_blocks(), options, {.threads = 2});
    const MemorySnapshot memory = device->ledger().snapshot();
    EXPECT_EQ(planned.weights, memory.peak_of(MemoryClass::parameters));
    EXPECT_EQ(planned.cache + planned.host_cache + planned.activations,
              memory.peak_of(MemoryClass::activations));
    EXPECT_EQ(planned.blocks, 6);
    EXPECT_EQ(planned.host_cache, planned.cache / 3);
    EXPECT_EQ(planned.longest_at_once(), 1);
  }
}

TEST(InferenceMemory, OfRanksThatShareWeightsIsTheirParts) {
  const PlannedRanks four{.shape = {.replicate = 1, .shard = 4, .tensor = 1}};
  const InferenceOptions options{.dtype = DType::bf16, .request_tokens = 64, .windows = 3};
  std::int64_t weights = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const InferenceMemory own =
        plan_inference_memory(llama_of(4, 4, 64, 512, 1024), options, four, rank);
    weights += own.weights;
    EXPECT_EQ(own.windows, 3 * 2 * kBlock) << "three whole blocks";
  }
  // Matrices once, vectors on every rank.
  constexpr std::int64_t kNorms = (2 * 4 + 1) * 256;
  EXPECT_EQ(weights, 2 * (4 * kBlock + kTables) + 4 * 2 * kNorms);
}

TEST(InferenceMemory, LeavesACacheSoManyBlocks) {
  // 1,000 bytes and 30 a block.
  const auto plan = [](std::int64_t blocks) {
    return BytesOfBlocks{1000 + 30 * blocks, 30 * blocks};
  };
  EXPECT_EQ(blocks_within(1150, 5, 100, plan), 5);
  EXPECT_EQ(blocks_within(1149, 5, 100, plan), std::nullopt);
  EXPECT_EQ(blocks_within(1209, 5, 100, plan), 6);
  EXPECT_EQ(blocks_within(1210, 5, 100, plan), 7);
  EXPECT_EQ(blocks_within(1 << 20, 5, 100, plan), 100);
  // In pages of 256: 1,280 hold 9 blocks.
  const auto pages = [](std::int64_t blocks) {
    return BytesOfBlocks{(1000 + 30 * blocks + 255) / 256 * 256, 30 * blocks};
  };
  EXPECT_EQ(blocks_within(1300, 2, 100, pages), 9);
}

TEST(InferenceMemory, FitsSoManyRequests) {
  const InferenceOptions options{.dtype = DType::bf16, .request_tokens = 256};
  const auto bytes = [&](std::int64_t requests) {
    InferenceOptions with = options;
    with.requests = requests;
    return plan_inference_memory(two_blocks(), with, {}).total();
  };
  for (const std::int64_t requests : {1, 7, 100}) {
    EXPECT_EQ(requests_within(two_blocks(), options, {}, bytes(requests)), requests);
    EXPECT_EQ(requests_within(two_blocks(), options, {}, bytes(requests) - 1), requests - 1);
  }
  EXPECT_EQ(requests_within(two_blocks(), options, {}, bytes(7), 5), 5);
}

}  // namespace
}  // namespace zero::testing
