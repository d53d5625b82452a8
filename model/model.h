// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "device/view.h"
#include "engine/engine.h"

namespace zero {

class BlockCheck;
class LifetimePlan;
class UnitListener;
struct BlockPass;

/// The size of one micro-batch: `batch` rows of `sequence` tokens. The ranks of a tensor group
/// compute the same micro-batches together.
struct BatchShape {
  std::int64_t batch = 1;
  std::int64_t sequence = 0;  ///< 1 .. context
};

/// A language model over the engine's public interface, of any family. Constructing one registers
/// its units; then
///
///   engine.seal({.order = model.order(), .accumulation_steps = 2});
///   model.allocate();
///   ... model.train(inputs, targets, 1.0F / tokens, loss); twice, then engine.step(...)
///
/// All work is submitted to the device's compute stream: views passed to train() and evaluate()
/// must live, with unchanged content, until that stream has passed the call. Results do not depend
/// on the device's threads. The engine must outlive the model.
class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// The order of unit uses in one micro-batch, for SealOptions::order.
  virtual std::vector<Use> order() const = 0;
  /// Call after seal(). Allocates all activation memory, charged to MemoryClass::activations, and,
  /// if the device's memory is apart, buffers for token ids and loss (staging); nothing is
  /// allocated later. Works on a planning device.
  virtual void allocate() = 0;
  /// Bytes that allocate() allocates for activations.
  virtual std::int64_t activation_bytes() const = 0;
  /// When each of those lives in a micro-batch, and where, without scratch.
  virtual const LifetimePlan& activation_places() const = 0;
  /// The memory of the tensors that a UnitListener is told of, in bytes; from allocate() on, which
  /// also moves it. The rest of activation_bytes() is scratch.
  virtual View activations() const = 0;
  /// Bytes that this rank sends along the tensor axis for one train(), as Communicator::traffic()
  /// counts them.
  virtual TrafficCounter tensor_traffic() const = 0;
  /// One sentence for the user on how the device computes the model (Ops::note); may be empty.
  virtual std::string note() const = 0;

  /// One micro-batch, forward and backward. All views are host memory (Device::allocate_host).
  /// `inputs`, `targets`: i32, batch x sequence, row-major, each in [0, vocabulary).
  /// `gradient_scale` multiplies d(loss)/d(logits) of each token: 1 / (tokens of the whole
  /// optimizer step), times a loss scale. `loss_sum`: one fp64 element, overwritten by the sum over
  /// tokens of the cross-entropy in nats; valid after device.compute().synchronize().
  virtual void train(View inputs, View targets, float gradient_scale, View loss_sum) = 0;
  /// The forward half of train(), with the same loss; between engine.begin_evaluation() and
  /// end_evaluation().
  virtual void evaluate(View inputs, View targets, View loss_sum) = 0;

  /// The blocks whose pass can be computed again behind their forward: those whose input is kept
  /// whole until backward. The same on all ranks.
  virtual std::vector<std::int64_t> blocks_with_input() const = 0;
  /// The views of such a block's pass, from allocate() on.
  virtual BlockPass block_pass(std::int64_t layer) const = 0;
  /// `check` is asked behind each block's forward pass in train(); it must outlive the model, or
  /// stay valid until replaced. Null: none. On devices in host memory.
  virtual void check_blocks(BlockCheck* check) = 0;

  virtual BatchShape shape() const = 0;
  virtual std::int64_t vocabulary() const = 0;
};

}  // namespace zero
