// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "inference/inference_model.h"
#include "tests/inference/saved_model.h"
#include "tests/support/test_device.h"

namespace zero::testing {

using Logits = std::vector<float>;

inline InferenceOptions rank_options(DType dtype = DType::fp32,
                                     WeightFormat format = WeightFormat::plain) {
  return {.dtype = dtype,
          .weights = format,
          .requests = 2,
          .request_tokens = 60,
          .host_tokens = 48,
          .rows = 48,
          .logit_rows = 24};
}

/// Different for every shard rank.
inline std::vector<std::uint32_t> tokens_of(int shard, std::int64_t vocabulary) {
  return random_prompt(40, vocabulary, static_cast<std::uint32_t>(shard) + 5);
}
/// Tokens of each pass; 0: none. Ranks have passes of different lengths, and some none.
inline std::vector<std::size_t> passes_of(int shard) {
  static const std::vector<std::vector<std::size_t>> kPasses{
      {17, 1, 0, 1, 5, 0}, {9, 22, 1, 1, 0, 0}, {0, 1, 1, 30, 0, 0}, {0, 0, 2, 1, 1, 0}};
  return kPasses.at(static_cast<std::size_t>(shard));
}

/// The logits of all passes of a shard rank, of up to 20 tokens of each.
inline Logits run_passes(InferenceModel& model, int shard) {
  const std::vector<std::uint32_t> tokens = tokens_of(shard, model.vocabulary());
  auto rest = std::span<const std::uint32_t>(tokens);
  const std::int64_t slot = model.cache().open();
  Logits all;
  for (const std::size_t count : passes_of(shard)) {
    const InferenceModel::Part part{slot, rest.first(count),
                                    static_cast<std::int64_t>(std::min<std::size_t>(count, 20))};
    model.forward(count == 0 ? std::span<const InferenceModel::Part>() : std::span(&part, 1));
    rest = rest.subspan(count);
    for (std::int64_t i = 0; count > 0 && i < part.logits; ++i) {
      const auto row = model.logits(i);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  model.cache().close(slot);
  return all;
}

inline std::unique_ptr<Device> open_device(const std::optional<StreamOrder>& order) {
  return order ? testing::open(*order) : cpu::open();
}

class InferenceRanks : public ::testing::Test {
 protected:
  void save(const DecoderShape& config) { with_saved_model(config, folder_, 1); }

  Logits alone(int shard, const InferenceOptions& with) {
    const auto device = cpu::open();
    return run_passes(*open_inference_model(*device, folder_, with), shard);
  }
  /// Of each rank of a mesh.
  std::vector<Logits> on_mesh(const MeshShape& shape, const InferenceOptions& with,
                              const std::optional<StreamOrder>& order = {}) {
    const int ranks = shape.ranks();
    std::vector<Logits> all(static_cast<std::size_t>(ranks));
    local::run(ranks, [&](Communicator& world) {
      Mesh mesh(world, shape);
      const auto device = open_device(order);
      const auto model = open_inference_model(*device, folder_, with, &mesh);
      all[static_cast<std::size_t>(world.rank())] = run_passes(*model, mesh.index(Axis::shard));
    });
    return all;
  }
  using Visit = std::function<void(Device&, InferenceModel&)>;
  /// Makes passes of `config`, which is saved, on each rank of a mesh, and calls `visit` on each.
  /// Memory and files are as planned, and nothing is allocated by the passes.
  void expect_as_planned(
      const DecoderShape& config, const MeshShape& shape, const InferenceOptions& with,
      const Visit& visit = [](Device&, InferenceModel&) {}) {
    local::run(shape.ranks(), [&](Communicator& world) {
      Mesh mesh(world, shape);
      const auto device = cpu::open({.threads = 2});
      const auto model = open_inference_model(*device, folder_, with, &mesh);
      const auto planned_world =
          planning::communicator(world.rank(), shape.ranks(), BackendKind::local);
      Mesh planned_mesh(*planned_world, shape);
      const auto plan = planning::open(2);
      const InferenceModel planned(*plan, config, with, &planned_mesh);
      EXPECT_EQ(device->ledger().snapshot().labels, plan->ledger().snapshot().labels);
      const std::int64_t allocations = device->ledger().allocations();
      run_passes(*model, mesh.index(Axis::shard));
      EXPECT_EQ(device->ledger().allocations(), allocations);
      EXPECT_EQ(device->ledger().snapshot().peak, plan->ledger().snapshot().peak);
      EXPECT_EQ(device->file_ledger().snapshot().labels, plan->file_ledger().snapshot().labels);
      visit(*device, *model);
    });
  }

  Scratch scratch_;
  std::string folder_ = scratch_.path("model/");  // that models are read from
};

using Kind = std::pair<DType, WeightFormat>;
inline constexpr std::array kKinds{
    Kind{DType::fp32, WeightFormat::plain}, Kind{DType::bf16, WeightFormat::plain},
    Kind{DType::fp16, WeightFormat::plain}, Kind{DType::fp32, WeightFormat::int8},
    Kind{DType::bf16, WeightFormat::nf4},   Kind{DType::fp32, WeightFormat::q4}};

}  // namespace zero::testing
