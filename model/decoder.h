// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/decoder_shape.h"
#include "model/model.h"
#include "model/tensor_parallel.h"

namespace zero {

/// A decoder-only transformer: embedding, blocks of attention and MLP around a residual stream, a
/// last norm, a head. Every family is one of these with another DecoderShape. A unit is the
/// embedding (with a tied head), a block, the last norm (with a head of its own). No dropout.
/// Computes in the engine's compute dtype, sums in fp32.
class Decoder : public Model {
 public:
  /// Registers the units; before engine.seal(). Layers are cut over the tensor axis of
  /// engine.mesh(), whose ranks are given the same micro-batches. Throws zero::Error where `shape`
  /// is out of range or the axis has more ranks than there is to cut; `decoder` was checked by its
  /// family. `listener`, which must outlive the model, hears of its operations and units.
  Decoder(Engine& engine, const DecoderShape& decoder, BatchShape shape,
          OpListener* listener = nullptr, const TensorOptions& tensor = {});
  ~Decoder() override;

  std::vector<Use> order() const override;
  void allocate() override;
  std::int64_t activation_bytes() const override;
  TrafficCounter tensor_traffic() const override;
  void train(View inputs, View targets, float gradient_scale, View loss_sum) override;
  void evaluate(View inputs, View targets, View loss_sum) override;
  void next_logits(View inputs, std::int64_t position, View logits) override;
  std::string note() const override;
  BatchShape shape() const override;
  std::int64_t vocabulary() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zero
