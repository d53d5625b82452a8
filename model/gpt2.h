// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "device/view.h"
#include "engine/engine.h"

namespace zero {

/// The sizes that make a GPT-2 (Radford et al. 2019). Head and token embedding are one parameter.
struct Gpt2Config {
  std::int64_t layers = 12;
  std::int64_t width = 768;  ///< C, a multiple of heads
  std::int64_t heads = 12;
  std::int64_t context = 1024;      ///< positions that have an embedding
  std::int64_t vocabulary = 50257;  ///< V, not padded

  /// "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m"; nothing for any other name.
  static std::optional<Gpt2Config> by_name(std::string_view name);
  /// Throws zero::Error naming the field that is out of range, its value and what it must be.
  void validate() const;
  /// Logical elements of all parameters: 124,439,808 for gpt2-124m.
  std::int64_t parameter_count() const;
};

/// What one micro-batch holds: `batch` rows of `sequence` tokens.
struct BatchShape {
  std::int64_t batch = 1;
  std::int64_t sequence = 0;  ///< 1 .. context
};

/// GPT-2 over the engine's public interface. Parameters have Hugging Face's names and layouts
/// ("wte.weight", "h.0.attn.c_attn.weight" as (in, out), ...); a unit is the embedding with the
/// tied head, a block, or the last norm. No dropout. Computes in the engine's compute dtype, sums
/// in fp32.
///
///   Gpt2 model(engine, config, {.batch = 4, .sequence = 512});
///   engine.seal({.order = model.order(), .accumulation_steps = 2});
///   model.allocate();
///   ... model.train(inputs, targets, 1.0F / tokens, loss); twice, then engine.step(...)
///
/// Everything is submitted to the device's compute stream: views given to train(), evaluate() and
/// next_logits() must live, and their content stay, until that stream has passed the call. Results
/// do not depend on the device's threads. The engine must outlive the model.
class Gpt2 {
 public:
  /// Registers the units; before engine.seal(). Throws zero::Error where `config` or `shape` is out
  /// of range.
  Gpt2(Engine& engine, const Gpt2Config& config, BatchShape shape);
  ~Gpt2();
  Gpt2(const Gpt2&) = delete;
  Gpt2& operator=(const Gpt2&) = delete;

  /// The uses of one micro-batch, for SealOptions::order.
  std::vector<Use> order() const;
  /// After seal(): takes all activation memory, charged to MemoryClass::activations; nothing is
  /// allocated later. Works on a planning device too.
  void allocate();
  /// Bytes that allocate() takes.
  std::int64_t activation_bytes() const;

  /// One micro-batch, forward and backward. `inputs`, `targets`: i32, host-readable, batch x
  /// sequence, row-major, each in [0, vocabulary). `gradient_scale` multiplies d(loss)/d(logits) of
  /// each token: 1 / (tokens of the whole optimizer step), times a loss scale. `loss_sum`: one fp64
  /// element, overwritten by the sum over tokens of the cross-entropy in nats; valid once
  /// device.compute() has run (synchronize).
  void train(View inputs, View targets, float gradient_scale, View loss_sum);
  /// The forward half of train(), with the same loss; between engine.begin_evaluation() and
  /// end_evaluation().
  void evaluate(View inputs, View targets, View loss_sum);
  /// The logits of row 0 at `position` (0 .. sequence - 1), for sampling: fp32, `vocabulary`
  /// elements. `inputs` as for train(); later positions and other rows are computed but do not
  /// change the result. Forward only, in evaluation mode.
  void next_logits(View inputs, std::int64_t position, View logits);

  const Gpt2Config& config() const;
  BatchShape shape() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zero
