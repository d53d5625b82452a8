// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What the operations of a micro-batch of GPT-2 124M, 32 x 1,024 tokens in bf16, read and write at
// least: docs/gpu.md has the figures.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "model/unit_listener.h"
#include "tests/model/training_harness.h"

namespace zero::testing {
namespace {

constexpr std::int64_t kRows = 32 * 1024;
constexpr std::int64_t kLayers = 12;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kVocabulary = 50257;
constexpr std::int64_t kBf16 = 2;
constexpr std::int64_t kFp32 = 4;

class OpSums final : public UnitListener {
 public:
  void begin(const OpCost& cost) override {
    ++calls_;
    bytes_ += static_cast<std::int64_t>(cost.bytes);
  }
  void end() noexcept override {}
  void unit(std::string_view /*name*/, Phase /*phase*/) override {}

  std::int64_t calls() const { return calls_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t calls_ = 0;
  std::int64_t bytes_ = 0;
};

/// Of a micro-batch on a device without memory.
OpSums sums_of(Device& device, BlockOutputs outputs) {
  OpSums sums;
  const auto alone = planning::communicator(0, 1, BackendKind::local, &device);
  Engine engine(*alone, device, {.compute = DType::bf16});
  RecomputePlan plan;
  plan.outputs = outputs;
  const DecoderShape shape = decoder_shape({{"layers", kLayers},
                                            {"width", kWidth},
                                            {"heads", 12},
                                            {"context", 1024},
                                            {"vocabulary", kVocabulary}});
  Decoder model(engine, shape, {32, 1024}, &sums, {}, plan);
  engine.seal({.order = model.order(), .accumulation_steps = 1});
  model.allocate();
  const Batch batch = Batch::random(kRows, kVocabulary, 1);
  double loss = 0;
  model.train(View::of(std::span(batch.inputs)), View::of(std::span(batch.targets)), 1.0F,
              View::of(std::span(&loss, 1)));
  return sums;
}

// Kept outputs take no second norm, and no second GELU, which backward writes where its operand
// was.
TEST(StepBytes, AreFewerWhereTheOutputsOfNormsAndGeluAreKept) {
  const auto device = planning::open_gpu_memory();
  const OpSums kept = sums_of(*device, BlockOutputs::kept);
  const OpSums again = sums_of(*device, BlockOutputs::again);
  constexpr std::int64_t kNorm =
      kBf16 * (2 * kRows * kWidth + 2 * kWidth) + kFp32 * 2 * kRows;  // reads, writes; figures
  constexpr std::int64_t kGelu = kBf16 * kRows * 4 * kWidth;
  EXPECT_EQ(again.calls() - kept.calls(), 2 * kLayers);
  EXPECT_EQ(again.bytes() - kept.bytes(), kLayers * (2 * kNorm + kGelu));
  RecordProperty("kept", fmt::format("{} calls, {} bytes", kept.calls(), kept.bytes()));
  RecordProperty("again", fmt::format("{} calls, {} bytes", again.calls(), again.bytes()));
}

// A piece of logits reads the table twice, and reads and writes its gradient in fp32.
TEST(StepBytes, AreFewerInLongerPiecesOfLogits) {
  const OpSums longer = sums_of(*planning::open_gpu_memory(), BlockOutputs::kept);
  const OpSums shorter = sums_of(*planning::open(), BlockOutputs::kept);
  constexpr std::int64_t kMore = kRows / 1024 - 2;  // pieces
  constexpr std::int64_t kTable = kWidth * kVocabulary;
  EXPECT_EQ(shorter.calls() - longer.calls(), 4 * kMore);
  EXPECT_EQ(shorter.bytes() - longer.bytes(), kMore * kTable * (2 * kBf16 + 2 * kFp32));
  RecordProperty("longer", fmt::format("{} calls, {} bytes", longer.calls(), longer.bytes()));
  RecordProperty("shorter", fmt::format("{} calls, {} bytes", shorter.calls(), shorter.bytes()));
}

}  // namespace
}  // namespace zero::testing
