// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "architecture/decoder_parameters.h"
#include "base/half.h"
#include "collectives/backends.h"
#include "model/decoder.h"
#include "tests/support/tiny_models.h"

namespace zero::testing {

/// Micro-batches of tokens, the same for everybody: a fixed little generator.
struct Batch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  static Batch random(std::int64_t tokens, std::int64_t vocabulary, std::uint32_t seed) {
    Batch batch;
    std::uint32_t state = seed * 2654435761U + 1;
    const auto next = [&] {
      state = state * 1664525U + 1013904223U;
      return static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary));
    };
    for (std::int64_t i = 0; i < tokens; ++i) {
      batch.inputs.push_back(next());
      batch.targets.push_back(next());
    }
    return batch;
  }
  /// From rows of sequence + 1 ids.
  static Batch of_rows(const std::vector<std::int32_t>& ids, std::int64_t sequence) {
    Batch batch;
    const auto row = static_cast<std::size_t>(sequence) + 1;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i % row != row - 1) batch.inputs.push_back(ids[i]);
      if (i % row != 0) batch.targets.push_back(ids[i]);
    }
    return batch;
  }
};

/// body(communicator, device) on one rank of one thread.
inline void alone(const std::function<void(Communicator&, Device&)>& body) {
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open({.threads = 1});
    body(communicator, *device);
  });
}

/// An engine with one model, sealed and allocated.
class Training {
 public:
  /// `ranks`: a Communicator or a Mesh.
  template <typename Ranks>
  Training(Ranks& ranks, Device& device, const EngineOptions& options, const DecoderShape& config,
           BatchShape shape, int accumulation_steps = 1, const TensorOptions& tensor = {},
           const RecomputePlan& recompute = {})
      : device_(device),
        config_(config),
        engine(ranks, device, options),
        model_(engine, config, shape, nullptr, tensor, recompute),
        model(model_) {
    engine.seal({.order = model.order(), .accumulation_steps = accumulation_steps});
    model.allocate();
  }

  /// The summed loss of one micro-batch, forward and backward.
  double train(const Batch& batch, float gradient_scale) {
    model.train(view(batch.inputs), view(batch.targets), gradient_scale, loss_view());
    return loss();
  }
  double evaluate(const Batch& batch) {
    engine.begin_evaluation();
    model.evaluate(view(batch.inputs), view(batch.targets), loss_view());
    device_.compute().synchronize();
    engine.end_evaluation();
    return loss_;
  }
  /// The logits of row 0 at `position`: the head's product of what the model computes up to it,
  /// with sums in fp64. Collective; between optimizer steps.
  std::vector<float> next_logits(const Batch& batch, std::int64_t position) {
    evaluate(batch);
    const std::vector<float> row = head_input(position);
    const DecoderParameters parameters(DecoderSplit::of(config_, 0, 1));
    const std::vector<float> weight = read(parameters.all[parameters.head].name);
    std::vector<float> logits;
    for (auto of_token = weight.begin(); of_token != weight.end(); of_token += config_.width) {
      logits.push_back(
          static_cast<float>(std::inner_product(row.begin(), row.end(), of_token, 0.0)));
    }
    return logits;
  }
  std::vector<float> read(const std::string& name, StateKind kind = StateKind::parameter) {
    std::vector<float> values(static_cast<std::size_t>(sizes().at(name)));
    engine.states().read(name, kind, View::of(std::span(values)));
    return values;
  }
  void write(const std::string& name, std::vector<float> values) {
    engine.states().write(name, StateKind::parameter, View::of(std::span(values)));
  }
  /// Elements of every parameter by full name.
  std::map<std::string, std::int64_t> sizes() {
    std::map<std::string, std::int64_t> counts;
    for (const LogicalTensor& tensor : engine.states().held(StateKind::parameter)) {
      std::int64_t count = 1;
      for (const std::int64_t dimension : tensor.shape) count *= dimension;
      counts[tensor.name] = count;
    }
    return counts;
  }

 private:
  static View view(const std::vector<std::int32_t>& ids) {
    return View::of(std::span<const std::int32_t>(ids));
  }
  std::vector<float> head_input(std::int64_t position) {
    const View row = model_.head_input().slice(position * config_.width, config_.width);
    std::vector<std::byte> bytes(static_cast<std::size_t>(row.bytes()));
    const View copy(bytes.data(), row.count(), row.dtype(), nullptr);
    device_.kernels().convert(device_.compute(), row, copy);
    device_.compute().synchronize();
    if (copy.dtype() == DType::bf16) return floats_of<bfloat16>(copy);
    return copy.dtype() == DType::fp16 ? floats_of<float16>(copy) : floats_of<float>(copy);
  }
  template <typename T>
  static std::vector<float> floats_of(View view) {
    std::vector<float> values;
    for (const T value : view.as<const T>()) values.push_back(to_float(value));
    return values;
  }
  View loss_view() { return View::of(std::span(&loss_, 1)); }
  double loss() {
    device_.compute().synchronize();
    return loss_;
  }

  Device& device_;
  const DecoderShape config_;
  double loss_ = 0;

 public:
  Engine engine;

 private:
  Decoder model_;

 public:
  Model& model;
};

}  // namespace zero::testing
